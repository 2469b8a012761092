// Bytes an element: (count + 1) times its size, and count - 1 additions. Memory limits it: a sum of
// 8 leaves in float32 reads and writes 36 bytes, so at 3.3 TB/s it gives 92 G elements/s.
#include "tensor/cuda/tree_sum.h"

#include "tensor/cuda/pointwise.h"

#include <string>
#include <type_traits>

namespace fsdp::cuda {
namespace {

template <class T>
struct Leaves {
  const T* at[kMostLeaves];
};

/// What a thread computes in: 16-bit floats are widened.
template <class T>
using Held = std::conditional_t<std::is_integral_v<T>, T, float>;

/// Sums of 16-bit floats round every time. Signed overflow wraps.
template <class T>
__device__ Held<T> plus(Held<T> a, Held<T> b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return widen(narrow<T>(a + b));
  }
}

/// `Size` neighbors of a leaf or of a sum.
template <class T, int Size>
struct Several {
  Held<T> values[Size];
};

template <int Size, class T>
__device__ Several<T, Size> load_leaf(const T* from) {
  Several<T, Size> result;
  if constexpr (!std::is_integral_v<T>) {
    load(result.values, from);
  } else if constexpr (Size == 4) {
    const auto four = *reinterpret_cast<const Four<T>*>(from);
    for (int j = 0; j < 4; ++j) result.values[j] = four.values[j];
  } else {
    result.values[0] = *from;
  }
  return result;
}
template <class T, int Size>
__device__ void store_sum(T* to, const Several<T, Size>& sum) {
  if constexpr (!std::is_integral_v<T>) {
    store(to, sum.values);
  } else if constexpr (Size == 4) {
    Four<T> four;
    for (int j = 0; j < 4; ++j) four.values[j] = sum.values[j];
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    *to = sum.values[0];
  }
}
template <class T, int Size>
__device__ Several<T, Size> plus_each(const Several<T, Size>& a, const Several<T, Size>& b) {
  Several<T, Size> sum;
  for (int j = 0; j < Size; ++j) sum.values[j] = plus<T>(a.values[j], b.values[j]);
  return sum;
}

/// `Count` leaves, a power of two: all loads come before the first addition.
template <int Count, int Size, class T>
__device__ Several<T, Size> sum_of(const Leaves<T>& in, std::int64_t i) {
  Several<T, Size> sums[Count];
  for (int leaf = 0; leaf < Count; ++leaf) sums[leaf] = load_leaf<Size>(in.at[leaf] + i);
  for (int span = 1; span < Count; span *= 2) {
    for (int leaf = 0; leaf < Count; leaf += 2 * span) {
      sums[leaf] = plus_each(sums[leaf], sums[leaf + span]);
    }
  }
  return sums[0];
}

/// Any number of leaves, which arrive like the counts of a binary number: partial[k] is a sum of
/// 2^k. So it is the tree of tree_sum.h, as TreeAccumulator builds it.
template <int Size, class T>
__device__ Several<T, Size> sum_any(const Leaves<T>& in, int count, std::int64_t i) {
  constexpr int kLevels = 9;
  static_assert(kMostLeaves < 1 << kLevels);
  Several<T, Size> partial[kLevels];
  for (int leaf = 0; leaf < count; ++leaf) {
    auto carry = load_leaf<Size>(in.at[leaf] + i);
    bool carries = true;
    for (int level = 0; level < kLevels; ++level) {  // unrolled: the partials stay in registers
      const bool is_full = (leaf >> level & 1) != 0;
      if (carries && is_full) carry = plus_each(partial[level], carry);
      if (carries && !is_full) {
        partial[level] = carry;
        carries = false;
      }
    }
  }
  // The remaining partials, the newest and smallest first.
  Several<T, Size> sum;
  bool has_sum = false;
  for (int level = 0; level < kLevels; ++level) {
    if ((count >> level & 1) == 0) continue;
    sum = has_sum ? plus_each(partial[level], sum) : partial[level];
    has_sum = true;
  }
  return sum;
}

/// Fixed: the number of leaves, or 0 for any. More than one need registers, without a bound.
template <int Fixed, class T>
__global__ void __launch_bounds__(kThreads, Fixed == 1 ? kBlocksAtOnce : 0)
    tree_sum_kernel(T* out, const Leaves<T> in, int count, std::int64_t n, bool vectorized) {
  for_groups(n, vectorized, [&](auto group) {
    constexpr int kSize = decltype(group)::size;
    if constexpr (Fixed == 0) {
      store_sum(out + group.begin, sum_any<kSize>(in, count, group.begin));
    } else {
      store_sum(out + group.begin, sum_of<Fixed, kSize>(in, group.begin));
    }
  });
}

}  // namespace

template <class T>
void tree_sum(Stream stream, T* out, const T* const* in, int count, std::int64_t n) {
  if (count < 1 || count > kMostLeaves) {
    const std::string got = "it adds 1 to 256 leaves in one call, but got " + std::to_string(count);
    fail_call("tree_sum", got.c_str());
  }
  if (n == 0) return;
  Leaves<Element<T>> leaves = {};
  bool vectorized = is_aligned(out);
  for (int k = 0; k < count; ++k) {
    leaves.at[k] = on_device(in[k]);
    vectorized = vectorized && is_aligned(in[k]);
  }
  const auto kernel = count == 1   ? tree_sum_kernel<1, Element<T>>
                      : count == 2 ? tree_sum_kernel<2, Element<T>>
                      : count == 4 ? tree_sum_kernel<4, Element<T>>
                      : count == 8 ? tree_sum_kernel<8, Element<T>>
                                   : tree_sum_kernel<0, Element<T>>;
  launch("tree_sum", blocks_for(n, 4), kThreads, 0, stream, kernel, on_device(out), leaves, count,
         n, vectorized);
}

template void tree_sum(Stream, float*, const float* const*, int, std::int64_t);
template void tree_sum(Stream, BFloat16*, const BFloat16* const*, int, std::int64_t);
template void tree_sum(Stream, Float16*, const Float16* const*, int, std::int64_t);
template void tree_sum(Stream, std::int32_t*, const std::int32_t* const*, int, std::int64_t);
template void tree_sum(Stream, std::int64_t*, const std::int64_t* const*, int, std::int64_t);

}  // namespace fsdp::cuda
