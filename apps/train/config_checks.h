/// @file
/// @ingroup train
/// Whether the values of a configuration, each right by itself, fit together.
#pragma once

#include "train/config.h"
#include "train/config_reader.h"

namespace fsdp::train {

/// Complains to `in` about values that contradict each other, and about those that would silently
/// do something other than what was asked; what only has no effect goes to `config.remarks`. Fills
/// in training.global_batch_size.
void check_together(ConfigReader& in, TrainConfig& config);

}  // namespace fsdp::train
