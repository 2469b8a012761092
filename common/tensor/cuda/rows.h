/// @file
/// @ingroup tensor
/// What kernels over rows share, for .cu files: which threads have a row, its sums and maxima.
///
/// A row of up to kWarpWidth elements has a warp, and a block several rows; a longer row has a
/// block. Which thread takes which elements depends on the width alone, never on an address, so a
/// row has the same bits wherever it lies.
#pragma once

#include "device/cuda/elements.h"
#include "device/cuda/launch.h"
#include "tensor/cuda/unroll.h"

#include <type_traits>

namespace fsdp::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffU;

inline constexpr std::int64_t kWarpWidth = 1024;

/// Threads of a block: x of a row, and y rows.
inline dim3 threads_for_rows(std::int64_t width) {
  return width <= kWarpWidth ? dim3(32, kThreads / 32) : dim3(kThreads);
}
/// Blocks for rows > 0 rows.
inline unsigned blocks_for_rows(std::int64_t rows, std::int64_t width) {
  const auto at_once = static_cast<std::int64_t>(threads_for_rows(width).y);
  return static_cast<unsigned>((rows + at_once - 1) / at_once);
}
/// The row of a thread. It may lie behind the last one.
__device__ inline std::int64_t row_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

/// values = from[0 … 4) widened; elements from `count` on are not read, and are `missing`. If the
/// rows are `whole`, nothing is to decide, and the loads of several calls are under way at once.
template <class T>
__device__ __forceinline__ void load_four(float (&values)[4], const T* from, std::int64_t count,
                                          std::true_type /*whole*/, float missing = 0) {
  if (count > 0) {
    const auto four = *reinterpret_cast<const Four<T>*>(from);
    for (int j = 0; j < 4; ++j) values[j] = widen(four.values[j]);
  } else {
    for (int j = 0; j < 4; ++j) values[j] = missing;
  }
}
template <class T>
__device__ __forceinline__ void load_four(float (&values)[4], const T* from, std::int64_t count,
                                          std::false_type /*whole*/ = {}, float missing = 0) {
  if (count >= 4 && is_aligned(from)) return load_four(values, from, count, std::true_type{});
  for (int j = 0; j < 4; ++j) values[j] = j < count ? widen(from[j]) : missing;
}

/// Calls body(whole), where `whole` says whether fours of these rows of `width` elements can be
/// loaded at once. The bits do not depend on it.
template <class Body, class... T>
__device__ __forceinline__ void for_whole_rows(Body body, std::int64_t width, const T*... rows) {
  if (width % 4 == 0 && (is_aligned(rows) && ...)) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
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
  FSDP_UNROLL_FOUR
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

/// The sum over the threads of a row, in one order, for all of them. Threads of a long row need a
/// barrier before the next call: the shared array is not protected against it.
__device__ inline float sum_of_row(float value) {
  __shared__ float of_warps[kThreads / 32];
  value = sum_of_lanes(value);
  if (blockDim.x == 32) return value;
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warps[warp];
  return sum;
}

}  // namespace fsdp::cuda
