/// @file
/// @ingroup nn
/// A folder that appears whole or not at all.
#pragma once

#include "nn/file_io.h"

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
///     replace `latest`                … and is the one to resume from
///     remove step_N.old
///
/// A crash at any moment leaves the previous checkpoint or the new one, never a mix, and at worst a
/// `.tmp` or `.old` folder that is cleared next time.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path root);
  /// Makes an empty temporary folder for step N (clearing stale ones). One rank calls it.
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

/// Renames the complete folder `temporary` to `final`, replacing what is there such that at every
/// moment existing_folder(final) is one whole folder, the old one or the new one.
void publish_folder(const std::filesystem::path& temporary, const std::filesystem::path& final);
/// `final`, or what a crash in the middle of replacing it left as `final`.old; `final` if neither
/// is.
std::filesystem::path existing_folder(const std::filesystem::path& final);

}  // namespace fsdp::nn
