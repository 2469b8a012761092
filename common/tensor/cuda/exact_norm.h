/// @file
/// @ingroup tensor
/// ExactSquareSum::add() on CUDA memory.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// Adds the squares of n values to the counters of exact_norm.h (ExactSquareSum::kCounters of them).
/// Which counter a square is added to is open; value() of the counters is the CPU's.
void add_exact_squares(Stream stream, std::int64_t* counters, const float* values, std::int64_t n);

}  // namespace fsdp::cuda
