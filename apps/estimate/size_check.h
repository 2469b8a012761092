/// @file
/// @ingroup estimate
/// Refuses what 64 bits cannot count, and what would fill the memory of this machine.
#pragma once

#include "config/config.h"

namespace fsdp::estimate {

/// Bytes of a rank, and picoseconds of two iterations on the modeled machine, are counted exactly
/// below 2^62. The largest terms of both are bounded here in real numbers, which cannot overflow.
/// And the record of the two iterations grows with every layer of every micro-batch.
/// @throws InputError naming the key that is largest, with the bound.
void check_sizes(const config::TrainConfig& config);

}  // namespace fsdp::estimate
