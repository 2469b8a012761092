/// @file
/// @ingroup tensor
/// tree_sum() of tree_sum.h on CUDA memory, with the CPU's bits: float, BFloat16, Float16,
/// std::int32_t, std::int64_t.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// Leaves of one sum: as many as the arguments of a kernel hold.
inline constexpr int kMostLeaves = 256;

/// out[i] = canonical sum over k of in[k][i], i in [0, n). `in` is an array on the host of `count`
/// addresses on the device; `out` may be one of them. With 16 bits, each addition is rounded.
/// @throws Error if count is below 1 or above kMostLeaves.
template <class T>
void tree_sum(Stream stream, T* out, const T* const* in, int count, std::int64_t n);

}  // namespace fsdp::cuda
