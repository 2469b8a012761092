/// @file
/// Orders by seed: 0 is the natural one, 1 the reverse, and all others are shuffled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace cuda_on_host {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}
  /// Below `limit`.
  std::size_t below(std::size_t limit) {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    return static_cast<std::size_t>((mixed ^ (mixed >> 31U)) % limit);
  }

 private:
  std::uint64_t state_;
};

inline std::vector<std::size_t> order_of(std::size_t count, std::uint64_t seed, Random& random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (seed == 1) std::reverse(order.begin(), order.end());
  if (seed > 1) {
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  return order;
}

}  // namespace cuda_on_host
