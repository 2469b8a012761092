// Of R ranks and K outs, a call reads R·n elements and writes K·n, for (R-1)·n additions: memory
// limits it. On one card of 3.3 TB/s, an all_reduce of 4 ranks in float32 handles 103 G elements/s.
#include "comm/cuda/sum_of_ranks.h"

#include "tensor/cuda/pointwise.h"

#include <type_traits>

namespace fsdp::cuda {
namespace {

template <class T>
inline constexpr bool kIs16Bit = sizeof(T) == 2;

/// What additions compute in. Integers wrap, which only unsigned ones may.
template <class T, bool = std::is_integral_v<T>>
struct SumType {
  using Type = std::make_unsigned_t<T>;
};
template <class T>
struct SumType<T, false> {
  using Type = std::conditional_t<kIs16Bit<T>, float, T>;
};
template <class T>
using Sum = typename SumType<T>::Type;

template <class T>
__device__ Sum<T> to_sum(T value) {
  if constexpr (kIs16Bit<T>) {
    return widen(value);
  } else {
    return static_cast<Sum<T>>(value);
  }
}

template <class T>
__device__ T from_sum(Sum<T> value) {
  if constexpr (kIs16Bit<T>) {
    return narrow<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

/// The canonical sum of leaves that come one by one. Like the carries of a binary counter,
/// partials_[l] holds the sum of 2^l leaves if bit l of their number is set. All loops over l have
/// a fixed length, so that partials are registers.
template <class T>
class Counter {
 public:
  __device__ void push(int number, T leaf) {
    Sum<T> carry = to_sum(leaf);
    bool is_placed = false;
    for (int l = 0; l < kLevels; ++l) {
      if (is_placed) continue;
      is_placed = (number >> l & 1) == 0;
      if (!is_placed) carry = plus(partials_[l], carry);
      if (is_placed) partials_[l] = carry;
    }
  }
  __device__ Sum<T> total(int count) const {
    Sum<T> sum = {};
    bool is_first = true;
    for (int l = 0; l < kLevels; ++l) {
      if ((count >> l & 1) == 0) continue;
      sum = is_first ? partials_[l] : plus(partials_[l], sum);
      is_first = false;
    }
    return sum;
  }

 private:
  static constexpr int kLevels = 7;  // of up to 64 leaves
  static __device__ Sum<T> plus(Sum<T> a, Sum<T> b) { return to_sum(from_sum<T>(a + b)); }
  Sum<T> partials_[kLevels] = {};
};

static_assert(kMostSummedRanks < 1 << 7);

/// Elements that one instruction loads or stores.
template <class T, int N>
struct alignas(N * sizeof(T)) Neighbors {
  T at[N];
};

/// `factor` is 1 for a plain sum.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(RankVectors<T> vectors, std::int64_t n, Sum<T> factor, bool vectorized) {
  for_groups(n, vectorized, [&](auto group) {
    using Values = Neighbors<T, group.size>;
    Counter<T> counters[group.size];
    for (int r = 0; r < vectors.in_count; ++r) {
      const Values leaves = *reinterpret_cast<const Values*>(vectors.ins[r] + group.begin);
      for (int j = 0; j < group.size; ++j) counters[j].push(r, leaves.at[j]);
    }
    Values sums;
    for (int j = 0; j < group.size; ++j) {
      sums.at[j] = from_sum<T>(counters[j].total(vectors.in_count) * factor);
    }
    for (int k = 0; k < vectors.out_count; ++k) {
      *reinterpret_cast<Values*>(vectors.outs[k] + group.begin) = sums;
    }
  });
}

}  // namespace

template <class T>
void sum_of_ranks(Stream stream, const RankVectors<T>& vectors, std::int64_t n, bool average) {
  if (n == 0 || vectors.out_count == 0) return;
  RankVectors<Element<T>> on{};
  on.in_count = vectors.in_count;
  on.out_count = vectors.out_count;
  bool vectorized = true;
  for (int r = 0; r < on.in_count; ++r) {
    on.ins[r] = on_device(vectors.ins[r]);
    vectorized = vectorized && is_aligned(on.ins[r]);
  }
  for (int k = 0; k < on.out_count; ++k) {
    on.outs[k] = on_device(vectors.outs[k]);
    vectorized = vectorized && is_aligned(on.outs[k]);
  }
  const auto one = static_cast<Sum<Element<T>>>(1);
  const auto factor = average ? one / static_cast<Sum<Element<T>>>(on.in_count) : one;
  const std::int64_t groups = vectorized ? (n + 3) / 4 : n;
  const auto threads =
      static_cast<unsigned>(std::min<std::int64_t>(kThreads, (groups + 31) / 32 * 32));
  launch("sum_of_ranks", blocks_for(n, 4), threads, 0, stream, sum_kernel<Element<T>>, on, n,
         factor, vectorized);
}

#define FSDP_FOR(T) template void sum_of_ranks(Stream, const RankVectors<T>&, std::int64_t, bool);
FSDP_FOR(float)
FSDP_FOR(double)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
FSDP_FOR(std::int32_t)
FSDP_FOR(std::int64_t)
#undef FSDP_FOR

}  // namespace fsdp::cuda
