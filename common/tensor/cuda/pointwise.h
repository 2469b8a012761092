/// @file
/// @ingroup tensor
/// The shape of every pointwise kernel, for .cu files.
#pragma once

#include "device/cuda/elements.h"
#include "device/cuda/launch.h"

namespace fsdp::cuda {

/// `size` neighbors, from element `begin` on.
template <int Size>
struct Group {
  static constexpr int size = Size;
  std::int64_t begin;
};

/// Calls body(group) for groups of four of the n elements, and of one for the tail. Without
/// `vectorized` all are groups of one. Each element belongs to one thread.
template <class Body>
__device__ void for_groups(std::int64_t n, bool vectorized, Body body) {
  const auto thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t groups = vectorized ? n / 4 : 0;
  for (std::int64_t group = thread; group < groups; group += threads) {
    body(Group<4>{4 * group});
  }
  for (std::int64_t i = 4 * groups + thread; i < n; i += threads) {
    body(Group<1>{i});
  }
}

/// values[0 … N) = from[0 … N), widened.
template <int N, class T>
__device__ void load(float (&values)[N], const T* from) {
  if constexpr (N == 4) {
    const auto four = *reinterpret_cast<const Four<T>*>(from);
    for (int j = 0; j < 4; ++j) values[j] = widen(four.values[j]);
  } else {
    values[0] = widen(*from);
  }
}

/// to[0 … N) = values[0 … N), each rounded once.
template <int N, class T>
__device__ void store(T* to, const float (&values)[N]) {
  if constexpr (N == 4) {
    Four<T> four;
    for (int j = 0; j < 4; ++j) four.values[j] = narrow<T>(values[j]);
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    *to = narrow<T>(values[0]);
  }
}

}  // namespace fsdp::cuda
