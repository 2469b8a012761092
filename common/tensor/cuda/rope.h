/// @file
/// @ingroup tensor
/// ops::rope on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// Rotates x (batch, length, heads, width) in place. cos, sin (length or more, width / 2) are
/// tables of ops::rope_tables.
template <class T>
void rope(Stream stream, T* x, const float* cos, const float* sin, bool inverse, std::int64_t batch,
          std::int64_t length, std::int64_t heads, std::int64_t width);

}  // namespace fsdp::cuda
