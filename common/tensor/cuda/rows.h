/// @file
/// @ingroup tensor
/// What kernels over rows share, for .cu files: a block per row, sums and maxima of a block.
///
/// Which thread takes which elements depends on the width alone, never on an address, so a row has
/// the same bits wherever it lies.
#pragma once

#include "device/cuda/elements.h"
#include "device/cuda/launch.h"

namespace fsdp::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffU;

/// Threads of a block that works on one row of `width` elements: whole warps, at most kThreads.
inline unsigned threads_for_row(std::int64_t width) {
  const std::int64_t warps = (width + 127) / 128;  // a lane takes four elements at a time
  return 32 * static_cast<unsigned>(std::clamp<std::int64_t>(warps, 1, kThreads / 32));
}

/// values = from[0 … 4) widened; elements from `count` on are not read, and are `missing`.
template <class T>
__device__ __forceinline__ void load_four(float (&values)[4], const T* from, std::int64_t count,
                                          float missing = 0) {
  if (count >= 4 && is_aligned(from)) {
    const auto four = *reinterpret_cast<const Four<T>*>(from);
    for (int j = 0; j < 4; ++j) values[j] = widen(four.values[j]);
  } else {
    for (int j = 0; j < 4; ++j) values[j] = j < count ? widen(from[j]) : missing;
  }
}

/// to[0 … 4) = values, each rounded once; elements from `count` on are not written.
template <class T>
__device__ __forceinline__ void store_four(T* to, const float (&values)[4], std::int64_t count) {
  if (count >= 4 && is_aligned(to)) {
    Four<T> four;
    for (int j = 0; j < 4; ++j) four.values[j] = narrow<T>(values[j]);
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    for (int j = 0; j < 4; ++j) {
      if (j < count) to[j] = narrow<T>(values[j]);
    }
  }
}

/// Calls body(i) for every i in [0, width) that is a multiple of 4 and belongs to this thread.
template <class Body>
__device__ void for_fours_of_row(std::int64_t width, Body body) {
  for (std::int64_t i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) body(i);
}

/// The sum over the lanes of a segment of `Lanes` lanes; the same bits in each of them, because an
/// addition commutes.
template <int Lanes = 32>
__device__ float sum_of_lanes(float value) {
  for (int apart = Lanes / 2; apart > 0; apart /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, apart);
  }
  return value;
}
template <int Lanes = 32>
__device__ float largest_of_lanes(float value) {
  for (int apart = Lanes / 2; apart > 0; apart /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, apart));
  }
  return value;
}

/// The sum over the threads of a block of whole warps, in one order, for all of them. Call it once
/// per kernel: the shared array is not protected against a second call.
__device__ inline float sum_of_block(float value) {
  __shared__ float of_warps[32];
  value = sum_of_lanes(value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warps[warp];
  return sum;
}

}  // namespace fsdp::cuda
