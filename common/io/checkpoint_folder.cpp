#include "io/checkpoint_folder.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/file_io.h"
#include "io/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>
#include <vector>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

// What a publish() that was killed left of `latest`.
constexpr const char* kLatestTemporary = "latest.tmp";

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
    throw InputError(fmt::format(
        "{}: this file names the checkpoint \"{}\", which is not a folder there; write the name of "
        "one that exists (step_N) into it, or remove the file to start a new training",
        file.string(), printable(name)));
  }
  return folder;
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
