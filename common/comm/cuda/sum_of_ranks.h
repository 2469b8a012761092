/// @file
/// @ingroup comm
/// The sum of a reduction between ranks, in the canonical order, for float, double, BFloat16,
/// Float16, std::int32_t and std::int64_t.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// The most ranks that one sum has.
inline constexpr int kMostSummedRanks = 64;

/// The elements of all ranks, and where their sum goes.
template <class T>
struct RankVectors {
  const T* ins[kMostSummedRanks];
  int in_count;
  T* outs[kMostSummedRanks];
  int out_count;
};

/// outs[k][i] = canonical sum of all ins[r][i] (tensor/tree_sum.h), i in [0, n), for every k: the
/// bits of tree_sum() and, if `average`, of scale_down(). An out may begin where an in does. All
/// must be memory that a kernel of the stream's device can reach.
template <class T>
void sum_of_ranks(Stream stream, const RankVectors<T>& vectors, std::int64_t n, bool average);

}  // namespace fsdp::cuda
