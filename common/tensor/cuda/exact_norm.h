/// @file
/// @ingroup tensor
/// ExactSquareSum::add() on CUDA memory.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// Adds the squares of n values, times `factor`, to `counters`, the ExactSquareSum::kCounters of
/// exact_norm.h. A counter need not hold what the CPU would add to it, but value() of all counters
/// is the CPU's.
void add_exact_squares(Stream stream, std::int64_t* counters, const float* values, std::int64_t n,
                       float factor = 1);

}  // namespace fsdp::cuda
