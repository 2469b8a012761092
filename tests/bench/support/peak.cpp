#include "bench/support/peak.h"

#include "bench/support/measure.h"
#include "device/context.h"
#include "tensor/simd.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace fsdp::bench {
namespace {

using Values = simd::VectorOf<float, simd::kRegisterBytes>::Values;
constexpr int kLanes = simd::kLanesOf<Values>;
/// Sums that do not wait for each other: more than are under way at a time, and no more than there
/// are registers.
constexpr int kSums = simd::kRegisters == 16 ? 12 : 24;
static_assert(kSums * simd::kRegisterBytes <= kMultiplyAddBytes);

}  // namespace

__attribute__((noinline)) void multiply_add(std::int64_t times, std::byte* to) {
  volatile float half = 0.5F;  // not known to the compiler
  const Values factor = simd::splat<float, Values>(half);
  Values sums[kSums];
  simd::unroll<kSums>([&](auto s) { sums[s] = factor * static_cast<float>(s); });  // all different
  for (std::int64_t i = 0; i < times; ++i) {
    simd::unroll<kSums>([&](auto s) { sums[s] = simd::fma<float>(sums[s], factor, factor); });
  }
  simd::unroll<kSums>(
      [&](auto s) { simd::store<float>(reinterpret_cast<float*>(to) + s * kLanes, sums[s]); });
}

double multiply_add_peak() {
  constexpr std::int64_t kPieces = 64, kTimes = 20'000;  // about 0.1 ms per piece
  const double seconds = best_time(
      [] {
        Context::current().pool().for_each(
            kPieces, [](std::int64_t, std::byte* scratch) { multiply_add(kTimes, scratch); });
      },
      0.2);
  return 2.0 * kLanes * kSums * kTimes * kPieces / seconds;
}

double seconds_per_gigabyte(int threads) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;  // per thread
  const auto count = static_cast<std::size_t>(threads);
  std::vector<std::vector<char>> from(count), to(count);
  for (std::size_t i = 0; i < count; ++i) {
    from[i].assign(kBytes, 1);
    to[i].assign(kBytes, 2);
  }
  const auto copy = [&](std::size_t i) { std::memcpy(to[i].data(), from[i].data(), kBytes); };
  const double seconds = best_time([&] {
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < count; ++i) others.emplace_back(copy, i);
    copy(0);
    for (std::thread& other : others) other.join();
  });
  return seconds / (2e-9 * static_cast<double>(kBytes) * threads);
}

}  // namespace fsdp::bench
