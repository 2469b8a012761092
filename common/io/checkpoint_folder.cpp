#include "io/checkpoint_folder.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/file_io.h"
#include "io/output_file.h"
#include "io/sharded_checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <functional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

// What a publish() that was killed left of `latest`.
constexpr const char* kLatestTemporary = "latest.tmp";
constexpr std::string_view kPrefix = "step_";

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path root) : root_(std::move(root)) {}

fs::path CheckpointFolder::temporary(std::int64_t step) const { return temporary_of(final(step)); }

fs::path CheckpointFolder::final(std::int64_t step) const {
  return root_ / fmt::format("step_{}", step);
}

fs::path CheckpointFolder::begin(std::int64_t step) const {
  FSDP_CHECK(step >= 0, "a checkpoint needs a step >= 0, got {}", step);
  create_folder(root_);
  check_file_is_ours(root_ / kLatestTemporary, "step_");
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
    fs::path path = entry.path();
    const fs::path extension = path.extension();
    if (!path.filename().string().starts_with("step_")) continue;
    if (extension == ".tmp" || extension == ".old") stale.push_back(path.replace_extension());
  }
  for (const fs::path& path : stale) {
    clear_temporary(path);
    restore_folder(path);
  }
  return begin_folder(final(step));
}

void CheckpointFolder::publish(std::int64_t step) const {
  publish_folder(temporary(step), final(step));
  write_text_atomically(root_ / "latest", final(step).filename().string() + "\n");
}

std::optional<fs::path> CheckpointFolder::latest() const {
  const fs::path file = root_ / "latest";
  if (!fs::exists(file)) return std::nullopt;
  std::string name = read_text(file, NAME_MAX + 1);
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  const bool is_plain = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  const fs::path folder = existing_folder(root_ / name);
  if (!is_plain || !fs::is_directory(folder)) {
    const std::optional<fs::path> whole = last_whole(root_, folder);
    throw InputError(fmt::format(
        "{}: this file names the checkpoint \"{}\", which is not a folder there; write the name of "
        "one that exists ({}) into it, or remove the file to start a new training",
        file.string(), printable(name), whole ? whole->filename().string() : "step_N"));
  }
  return folder;
}

std::int64_t step_in(const std::string& name) {
  std::int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const auto [end, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  const std::string rest(end, name.data() + name.size());
  const bool is_ours = rest.empty() || rest == ".tmp" || rest == ".old";
  return error == std::errc() && is_ours ? step : -1;
}

std::optional<fs::path> last_whole(const fs::path& root, const fs::path& damaged) {
  std::vector<std::pair<std::int64_t, fs::path>> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    const std::int64_t step = step_in(name);
    const bool is_published = name == fmt::format("{}{}", kPrefix, step);
    if (is_published && name != damaged.filename()) others.emplace_back(step, entry.path());
  }
  std::ranges::sort(others, std::greater());
  for (const auto& [step, folder] : others) {
    try {
      SliceReader(folder).verify(0, 1);
      return folder;
    } catch (const InputError&) {  // damaged, too
    }
  }
  return std::nullopt;
}

std::string way_on_from(const fs::path& damaged) {
  const fs::path latest = damaged.parent_path() / "latest";
  std::error_code ignored;
  if (!fs::exists(latest, ignored)) return "";
  const std::optional<fs::path> whole = last_whole(damaged.parent_path(), damaged);
  if (!whole) return fmt::format("; no other checkpoint beside {} is whole", latest.string());
  return fmt::format(
      "; the last whole checkpoint is {0}: to go on from it, write {0} into {1}, and move {2} away",
      whole->filename().string(), latest.string(), damaged.filename().string());
}

WholeCheckpoint whole_checkpoint(const fs::path& named) {
  const fs::path given = (named / "").parent_path();  // without a last "/"
  const auto verified = [](const fs::path& folder) {
    SliceReader(folder).verify(0, 1);
    return folder;
  };
  if (!fs::is_directory(given)) {
    throw InputError(given.string() +
                     ": no such folder; give a checkpoint step_N, or the folder of a training");
  }
  if (holds_slices(given)) {
    try {
      verified(given);
      return {named};
    } catch (const InputError& error) {
      const fs::path above = given.has_parent_path() ? given.parent_path() : ".";
      const std::optional<fs::path> whole = last_whole(above, given);
      throw InputError(error.what() +
                       (whole ? "; the last whole checkpoint is " + whole->string() : ""));
    }
  }
  std::optional<fs::path> latest;
  try {
    latest = CheckpointFolder(given).latest();
    if (latest) return {verified(*latest)};
  } catch (const InputError& error) {
    const std::optional<fs::path> whole = last_whole(given, latest.value_or(fs::path()));
    if (whole) return {*whole, error.what()};
    throw InputError(
        fmt::format("{}; no other checkpoint in {} is whole", error.what(), given.string()));
  }
  throw InputError(
      fmt::format("{}: holds no checkpoint; give a folder step_N, the folder of a training, or an "
                  "export that --export.optimizer was given for",
                  given.string()));
}

FolderLock::FolderLock(const fs::path& root) {
  create_folder(root);
  const fs::path file = root / ".lock";
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw InputError(fmt::format("{}: cannot be written: {}; give a folder that can be written",
                                 file.string(), std::generic_category().message(errno)));
  }
  // A file system that knows no locks answers with another error: then nothing is locked.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw InputError(fmt::format(
        "{}: is in use by another training; wait until it has ended, or give another folder",
        root.string()));
  }
}

FolderLock::~FolderLock() { ::close(descriptor_); }

}  // namespace fsdp::io
