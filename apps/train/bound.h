/// @file
/// @ingroup train
/// What the formula of the writeup allows a rank.
#pragma once

#include "train/config.h"

#include <cstdint>

namespace fsdp::train {

/// The peak of one rank of a training run, in bytes, by closed form from the configuration alone.
std::int64_t bound_bytes(const TrainConfig& config);

}  // namespace fsdp::train
