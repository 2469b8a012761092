/// @file
/// @ingroup io
/// A folder that appears whole or not at all.
#pragma once

#include "base/check.h"
#include "io/file_io.h"
#include "io/output_folder.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fsdp::io {

/// The checkpoints of a run: folders `root/step_N/`, and the file `root/latest`, which names one.
///
/// Every rank writes to `root/step_N.tmp/`, and all files are synced. After a barrier of the ranks,
/// one rank calls publish():
///
///     rename step_N -> step_N.old     only if an older run left one
///     rename step_N.tmp -> step_N     the checkpoint exists, complete
///     remove step_N.old
///     replace `latest`                training resumes from it
///
/// A crash at any moment leaves the previous checkpoint or the new one, never a mix. At worst a
/// `.tmp` or `.old` folder stays, which the next save clears. Folders that are not ours are never
/// touched: see output_folder.h.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path root);
  /// Makes an empty temporary folder for step N (clearing stale ones). One rank calls it. All files
  /// that write_slices() puts there carry one id, so that two saves never mix.
  /// @throws InputError if step_N, step_N.tmp or step_N.old exists and is not ours.
  std::filesystem::path begin(std::int64_t step) const;
  std::filesystem::path temporary(std::int64_t step) const;  ///< root/step_N.tmp
  std::filesystem::path final(std::int64_t step) const;      ///< root/step_N
  /// Syncs the temporary folder, renames it, replaces `latest`. One rank calls it, after all ranks
  /// have synced all files.
  void publish(std::int64_t step) const;
  /// The folder that `latest` names, if that file exists. Changes nothing: every rank may call it.
  /// @throws InputError if the folder does not exist.
  std::optional<std::filesystem::path> latest() const;
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

/// N of "step_N", "step_N.tmp" or "step_N.old"; -1 for any other name.
std::int64_t step_in(const std::string& name);

/// The checkpoint of the most steps in `root` of which every byte is right, other than `damaged`.
std::optional<std::filesystem::path> last_whole(const std::filesystem::path& root,
                                                const std::filesystem::path& damaged);

/// The end of a sentence about a damaged checkpoint: how to go on from the last whole one beside
/// it. Empty if its folder has no file `latest`.
std::string way_on_from(const std::filesystem::path& damaged);

/// What `read` returns, which reads the checkpoint `folder`.
/// @throws InputError as `read` does, with the way on.
template <class Read>
auto or_way_on(const std::filesystem::path& folder, const Read& read) {
  try {
    return read();
  } catch (const InputError& error) {
    throw InputError(error.what() + way_on_from(folder));
  }
}

/// A checkpoint of which every byte is right.
struct WholeCheckpoint {
  std::filesystem::path folder;
  std::string passed_over = {};  ///< what is wrong with the one that should have been taken
};

/// The checkpoint that `named` stands for. That is `named` itself if it holds shard files or a
/// joined file. Otherwise it is the folder of a training: then the checkpoint that `latest` names
/// or, if that is lost or damaged, the last whole one. Reads all of it.
/// @throws InputError with the remedy if there is none, or `named` itself is damaged.
WholeCheckpoint whole_checkpoint(const std::filesystem::path& named);

/// Locks a folder of checkpoints against other processes while it lives. The kernel releases the
/// lock when the process dies, however it dies.
class FolderLock {
 public:
  /// Creates the folder if it does not exist, and in it the empty file `.lock`.
  /// @throws InputError if the folder is locked already, or cannot be written.
  explicit FolderLock(const std::filesystem::path& root);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace fsdp::io
