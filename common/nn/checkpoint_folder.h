/// @file
/// @ingroup nn
/// A folder that appears whole or not at all.
#pragma once

#include "nn/file_io.h"
#include "nn/output_folder.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fsdp::nn {

/// Where the checkpoints of a run live: `root/step_N/` and the file `root/latest`, which names one.
///
/// Writing: everything goes to `root/step_N.tmp/`; files and folder are synced; after a barrier of
/// the ranks, one rank calls publish():
///
///     rename step_N -> step_N.old     only if an older run left one
///     rename step_N.tmp -> step_N     the checkpoint is there, whole
///     remove step_N.old
///     replace `latest`                … and is the one to resume from
///
/// A crash at any moment leaves the previous checkpoint or the new one, never a mix, and at worst a
/// `.tmp` or `.old` folder that is cleared next time. Folders that are not ours are never touched:
/// see output_folder.h.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path root);
  /// Makes an empty temporary folder for step N (clearing stale ones). One rank calls it. All that
  /// write_slices() puts there carries one id, so that files of two saves never pass for one.
  /// @throws InputError if step_N, step_N.tmp or step_N.old is there and not ours.
  std::filesystem::path begin(std::int64_t step) const;
  std::filesystem::path temporary(std::int64_t step) const;  ///< root/step_N.tmp
  std::filesystem::path final(std::int64_t step) const;      ///< root/step_N
  /// Syncs the temporary folder, renames it, replaces `latest`. One rank calls it, after all files
  /// of all ranks are synced.
  void publish(std::int64_t step) const;
  /// The folder `latest` names, if there is such a file. Changes nothing: every rank may ask.
  /// @throws InputError if it names one that does not exist.
  std::optional<std::filesystem::path> latest() const;
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

/// Keeps every other process out of a folder of checkpoints as long as it lives. The kernel
/// releases it when the process dies, however it dies.
class FolderLock {
 public:
  /// Creates the folder if it is not there, and in it the empty file `.lock`.
  /// @throws InputError if the folder is locked already, or cannot be written.
  explicit FolderLock(const std::filesystem::path& root);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace fsdp::nn
