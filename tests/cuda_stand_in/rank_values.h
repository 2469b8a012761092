/// @file
/// What each rank brings to a collective, and the sums that follow.
#pragma once

#include <cstddef>
#include <vector>

using Floats = std::vector<float>;

inline constexpr std::size_t kCount = 5;

inline float value(int rank, std::size_t i) {
  return 1 / (static_cast<float>(rank) * 3 + static_cast<float>(i) + 1);
}

inline Floats values(int rank, std::size_t n) {
  Floats result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = value(rank, i);
  return result;
}

/// The sum in the order of ranks.
inline float sum_of_ranks(int ranks, std::size_t i) {
  float sum = value(0, i);
  for (int r = 1; r < ranks; ++r) sum += value(r, i);
  return sum;
}
