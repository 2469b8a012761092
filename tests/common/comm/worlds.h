/// @file
/// The worlds the contract suite runs in: of threads, or of processes where mpirun has started this
/// program; plain, and behind a decorator that must change nothing.
#pragma once

#include "base/philox.h"
#include "comm/process_group.h"
#include "support/catch.h"
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::comm_test {

struct World {
  std::string name;
  bool canonical_bits = true;  ///< sums are in the order of tensor/tree_sum.h, to the last bit
  bool on_device = false;      ///< tensors are on a device whose streams the host runs ahead of
  std::function<void(int world_size, const std::function<void(ProcessGroup&)>&)> run;
};

const std::vector<World>& worlds();

const std::vector<int>& world_sizes();

/// Runs `body` on every rank of every world at every size; a failure names both. In a world on a
/// device, new tensors are there.
void in_every_world(const std::function<void(const World&, ProcessGroup&)>& body);

/// Catch2's assertions are not for several threads at once: on a rank, throw, and let run_ranks
/// report it.
template <class... Args>
void expect(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

inline constexpr std::int64_t kPeriod = 4'093;

/// The element `i` that rank `rank` contributes: of mixed sign and size, so that every order of
/// addition gives other bits. Repeats itself, since drawing numbers is what takes these tests long.
template <class T>
T element(int rank, std::int64_t i) {
  const std::int64_t index = rank * kPeriod + i % kPeriod;
  const std::uint32_t word = random_word(17, static_cast<std::uint64_t>(index));
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int32_t>(word) / 64);
  } else if constexpr (kIsHalf<T>) {
    return static_cast<T>(static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-22F /
                          static_cast<float>(1U << (word % 8)));
  } else {
    const auto mantissa = static_cast<T>(static_cast<std::int32_t>(word));
    return mantissa / static_cast<T>(1U << (word % 24));
  }
}

template <class T>
std::vector<T> contribution(int rank, std::int64_t numel) {
  std::vector<T> values(static_cast<std::size_t>(numel));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i < kPeriod ? element<T>(rank, static_cast<std::int64_t>(i)) : values[i - kPeriod];
  return values;
}

/// Overwrites `tensor`, which is contiguous.
template <class T>
void put(const Tensor& tensor, const std::vector<T>& values) {
  if (tensor.numel() == 0) return;
  if (tensor.device().host_can_read()) {
    std::memcpy(tensor.raw(), values.data(), tensor.nbytes());
  } else {
    Context::current().rank_device().write(tensor.raw(), values.data(), tensor.nbytes());
  }
}

/// The canonical sum, written down once more: leaves [begin, end) split at the largest power of two
/// below their number.
template <class T>
T tree_of(const std::vector<T>& leaves, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return leaves[begin];
  std::size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  const T left = tree_of(leaves, begin, begin + half), right = tree_of(leaves, begin + half, end);
  return static_cast<T>(static_cast<Wide<T>>(left) + static_cast<Wide<T>>(right));
}

/// What reducing element `i` over `world_size` ranks must give.
template <class T>
T reduced(int world_size, std::int64_t i, ReduceOp op = ReduceOp::sum) {
  std::vector<T> leaves;
  for (int rank = 0; rank < world_size; ++rank) leaves.push_back(element<T>(rank, i));
  const T sum = tree_of(leaves, 0, leaves.size());
  if (op == ReduceOp::sum) return sum;
  return static_cast<T>(static_cast<Wide<T>>(sum) * (1 / static_cast<Wide<T>>(world_size)));
}

/// What another order of addition may change a sum of a few elements by.
template <class T>
constexpr double rounding_of_sums() {
  if constexpr (std::is_integral_v<T>) return 0;
  const double largest = kIsHalf<T> ? 0x1p9 : 0x1p31;  // of the elements
  if constexpr (std::is_same_v<T, BFloat16>) return 4 * largest * 0x1p-8;
  if constexpr (std::is_same_v<T, Float16>) return 4 * largest * 0x1p-11;
  return 4 * largest * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53);
}

/// Throws unless `tensor` holds expected(i) at every i, to the last bit (or nearly, without
/// canonical bits). Of a large tensor, every 13th element.
template <class T, class Expected>
void expect_elements(const World& world, const Tensor& tensor, Expected&& expected) {
  const std::vector<T> actual = tensor.to_vector<T>();
  const std::int64_t step = tensor.numel() > 50'000 ? 13 : 1;
  for (std::int64_t i = 0; i < tensor.numel(); i += step) {
    const T want = expected(i);
    const auto wanted = static_cast<double>(static_cast<Wide<T>>(want));
    const auto found =
        static_cast<double>(static_cast<Wide<T>>(actual[static_cast<std::size_t>(i)]));
    const double slack = world.canonical_bits ? 0 : rounding_of_sums<T>();
    expect(std::abs(found - wanted) <= slack, "element {}: {} instead of {}", i, found, wanted);
  }
}

}  // namespace fsdp::comm_test
