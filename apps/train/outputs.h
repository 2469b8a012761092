/// @file
/// @ingroup train
/// Everything a run will write, tried before its first step.
#pragma once

#include "nn/checkpoint_folder.h"
#include "train/config.h"
#include "train/data.h"
#include "train/trainer.h"

#include <memory>

namespace fsdp::train {

/// The files of a picture, in its folder.
inline constexpr const char* kPicturePage = "timeline.html";
inline constexpr const char* kPictureTrace = "trace.json";

/// Locks the checkpoint folder, and finds out whether checkpoints, export, picture and summary can
/// be written where they are to go: that the place can be written, and that nothing is there that
/// is not ours. @return the lock; null without checkpoints
/// @throws InputError naming the option or key, the path and the remedy.
std::unique_ptr<nn::FolderLock> claim_outputs(const TrainConfig& config, const TokenData& data,
                                              const RunOptions& options);

}  // namespace fsdp::train
