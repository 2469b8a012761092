/// @file
/// @ingroup nn
/// A folder that appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fsdp::nn {

/// Where the checkpoints of a run live: `root/step_N/` and the file `root/latest`, which names one.
///
/// Writing: everything goes to `root/step_N.tmp/`; files and folder are synced; after a barrier of the
/// ranks, one rank calls publish(), which renames the folder and then replaces `latest` atomically. A crash at any
/// moment leaves the previous checkpoint and, at worst, a `.tmp` folder that is cleared next time.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path root);
  /// Makes an empty temporary folder for step N (clearing a stale one). One rank calls it.
  std::filesystem::path begin(std::int64_t step) const;
  std::filesystem::path temporary(std::int64_t step) const;  ///< root/step_N.tmp
  std::filesystem::path final(std::int64_t step) const;      ///< root/step_N
  /// Syncs the temporary folder, renames it, replaces `latest`. One rank calls it, after all files
  /// of all ranks are synced.
  void publish(std::int64_t step) const;
  /// The folder `latest` names, if any. @throws InputError if it names one that does not exist.
  std::optional<std::filesystem::path> latest() const;

 private:
  std::filesystem::path root_;
};

/// fsync of a file or folder. @throws Error with errno's text.
void sync_to_disk(const std::filesystem::path& path);
/// Writes a small text file through a temporary, synced and renamed.
void write_text_atomically(const std::filesystem::path& path, const std::string& text);

}  // namespace fsdp::nn
