#include "nn/checkpoint_folder.h"

#include "base/check.h"
#include "nn/file_io.h"

#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::nn {
namespace {

namespace fs = std::filesystem;

fs::path with_suffix(fs::path path, std::string_view suffix) {
  path += suffix;
  return path;
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

fs::path existing_folder(const fs::path& final) {
  const fs::path old = with_suffix(final, ".old");
  return !fs::exists(final) && fs::exists(old) ? old : final;
}

void publish_folder(const fs::path& temporary, const fs::path& final) {
  sync_to_disk(temporary);
  const fs::path old = with_suffix(final, ".old");
  if (fs::exists(final)) {
    if (fs::exists(old)) remove_tree(old);
    rename_path(final, old);
  }
  rename_path(temporary, final);
  sync_to_disk(parent_of(final));
  if (fs::exists(old)) remove_tree(old);
}

CheckpointFolder::CheckpointFolder(fs::path root) : root_(std::move(root)) {}

fs::path CheckpointFolder::temporary(std::int64_t step) const {
  return root_ / fmt::format("step_{}.tmp", step);
}

fs::path CheckpointFolder::final(std::int64_t step) const {
  return root_ / fmt::format("step_{}", step);
}

fs::path CheckpointFolder::begin(std::int64_t step) const {
  FSDP_CHECK(step >= 0, "a checkpoint needs a step >= 0, got {}", step);
  create_folder(root_);
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
    const fs::path& path = entry.path();
    if (!path.filename().string().starts_with("step_")) continue;
    if (path.extension() == ".tmp") stale.push_back(path);
    if (path.extension() == ".old") {
      fs::path whole = path;
      whole.replace_extension();
      // A crash between the two renames of publish(): the old checkpoint is the only whole one.
      if (fs::exists(whole)) {
        stale.push_back(path);
      } else {
        rename_path(path, whole);
      }
    }
  }
  for (const fs::path& path : stale) remove_tree(path);
  create_folder(temporary(step));
  return temporary(step);
}

void CheckpointFolder::publish(std::int64_t step) const {
  publish_folder(temporary(step), final(step));
  write_text_atomically(root_ / "latest", final(step).filename().string() + "\n");
}

std::optional<fs::path> CheckpointFolder::latest() const {
  const fs::path file = root_ / "latest";
  if (!fs::exists(file)) return std::nullopt;
  std::string name = read_text(file);
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  const bool is_plain = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  const fs::path folder = existing_folder(root_ / name);
  if (!is_plain || !fs::is_directory(folder)) {
    throw InputError(
        fmt::format("{}: names the checkpoint \"{}\", which is not a folder there; write the name "
                    "of one that exists (step_N) into it, or remove it to start anew",
                    file.string(), name));
  }
  return folder;
}

}  // namespace fsdp::nn
