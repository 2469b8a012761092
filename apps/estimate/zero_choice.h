/// @file
/// @ingroup estimate
/// What a DeepSpeed configuration says of the buffers of ZeRO.
#pragma once

#include "estimate/estimator_config.h"

namespace fsdp::estimate {

/// DeepSpeed's own defaults where its file is silent. What is "auto" there, Hugging Face's Trainer
/// derives from the model's width. A notice that a key has no effect is taken back if it has one.
/// @throws InputError for a value that is no number
void choose_zero_habits(EstimatorConfig& config);

}  // namespace fsdp::estimate
