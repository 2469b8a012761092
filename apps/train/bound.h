/// @file
/// @ingroup train
/// What the formula of the writeup allows a rank.
#pragma once

#include "train/config.h"

#include <cstdint>

namespace fsdp::train {

/// The peak of one rank of a training run, in bytes, by closed form from the configuration alone.
/// Evaluations do not raise it, except in a training of one step, where it is an upper bound then.
std::int64_t bound_bytes(const TrainConfig& config);

}  // namespace fsdp::train
