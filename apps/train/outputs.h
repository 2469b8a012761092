/// @file
/// @ingroup train
/// Everything a run will write, tried before its first step.
#pragma once

#include "config/config.h"
#include "io/checkpoint_folder.h"
#include "train/data.h"
#include "train/trainer.h"

#include <memory>
#include <vector>

namespace fsdp::train {

/// Keeps every other process out of the folders of a run as long as it lives.
struct OutputClaims {
  std::unique_ptr<io::FolderLock> checkpoints;     ///< null without checkpoints
  std::unique_ptr<io::FolderClaim> export_folder;  ///< null without an export
};

/// Claims the checkpoint folder and the export, and finds out whether checkpoints, export and the
/// planned files can be written where they are to go: that the place can be written, and that
/// nothing is there that is not ours.
/// @throws InputError naming the option or key, the path and the remedy.
OutputClaims claim_outputs(const config::TrainConfig& config, const TokenData& data,
                           const RunOptions& options);

/// Finds out whether these files can be written.
/// @throws InputError naming the option, the path and the remedy.
void probe_files(const std::vector<PlannedFile>& files);

}  // namespace fsdp::train
