#include "tensor/tree_sum.h"

#include "tensor/dispatch.h"
#include "tensor/simd.h"

#include <bit>
#include <cstring>

namespace fsdp {
namespace {

/// Where K leaves are split: the largest power of two below K.
std::size_t split_of(std::size_t leaves) { return std::bit_floor(leaves - 1); }

/// Elements added up at a time: the partial sums of a whole block stay in the first-level cache.
constexpr std::int64_t kBlock = 512;

template <class T>
const T* leaf(const std::byte* const* in, std::size_t k, std::int64_t at) {
  return reinterpret_cast<const T*>(in[k]) + at;
}

/// Signed overflow wraps, as on every machine, instead of being undefined.
template <class T>
T plus(T a, T b) {
  if constexpr (kIsHalf<T>) {
    return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

/// to = canonical sum of `count` leaves over n <= kBlock elements from `at` on. `to` is no leaf.
template <class T>
void sum_block(T* to, const std::byte* const* in, std::size_t count, std::int64_t at,
               std::int64_t n) {
  if (count == 1) {
    std::memcpy(to, leaf<T>(in, 0, at), static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  if (count == 2) {
    const T *a = leaf<T>(in, 0, at), *b = leaf<T>(in, 1, at);
    for (std::int64_t i = 0; i < n; ++i) to[i] = plus(a[i], b[i]);
    return;
  }
  const std::size_t split = split_of(count);
  T right[kBlock];
  sum_block(to, in, split, at, n);
  sum_block(right, in + split, count - split, at, n);
  for (std::int64_t i = 0; i < n; ++i) to[i] = plus(to[i], right[i]);
}

/// out[i] = value(i), where out may be one of the addends: read, then written, vector by vector.
template <class T, class Value>
void sum_through(T* out, std::int64_t numel, Value value) {
  simd::for_lanes<T>(numel, [=](std::int64_t i, auto count) {
    simd::store_n<T>(out + i, value(i, count), count);
  });
}

template <class T>
void sum_all(std::byte* bytes, std::span<const std::byte* const> in, std::int64_t numel) {
  T* out = reinterpret_cast<T*>(bytes);
  const std::byte* const* leaves = in.data();
  if constexpr (!std::is_integral_v<T>) {
    const auto at = [=](std::size_t k, std::int64_t i, auto count) {
      return simd::load_n<T>(leaf<T>(leaves, k, i), count);
    };
    // Every sum of two rounds: 16-bit floats too.
    const auto plus_of = [](simd::Vec<T> a, simd::Vec<T> b) { return simd::rounded<T>(a + b); };
    if (in.size() == 2) {
      return sum_through(out, numel, [=](std::int64_t i, auto count) {
        return plus_of(at(0, i, count), at(1, i, count));
      });
    }
    if (in.size() == 4) {
      return sum_through(out, numel, [=](std::int64_t i, auto count) {
        return plus_of(plus_of(at(0, i, count), at(1, i, count)),
                       plus_of(at(2, i, count), at(3, i, count)));
      });
    }
    if (in.size() == 8) {
      return sum_through(out, numel, [=](std::int64_t i, auto count) {
        return plus_of(plus_of(plus_of(at(0, i, count), at(1, i, count)),
                               plus_of(at(2, i, count), at(3, i, count))),
                       plus_of(plus_of(at(4, i, count), at(5, i, count)),
                               plus_of(at(6, i, count), at(7, i, count))));
      });
    }
  }
  T block[kBlock];
  for (std::int64_t begin = 0; begin < numel; begin += kBlock) {
    const std::int64_t n = numel - begin < kBlock ? numel - begin : kBlock;
    sum_block(block, leaves, in.size(), begin, n);
    std::memcpy(out + begin, block, static_cast<std::size_t>(n) * sizeof(T));
  }
}

}  // namespace

void tree_sum(std::byte* out, std::span<const std::byte* const> in, std::int64_t numel,
              DType dtype) {
  FSDP_CHECK(!in.empty(), "tree_sum needs at least one value");
  if (numel <= 0) return;
  if (in.size() == 1) {
    if (out != in[0]) std::memcpy(out, in[0], static_cast<std::size_t>(numel) * size_of(dtype));
    return;
  }
  dispatch_any(dtype, [&]<class T>(T) { sum_all<T>(out, in, numel); });
}

float tree_sum(std::span<const float> values) {
  FSDP_CHECK(!values.empty(), "tree_sum needs at least one value");
  if (values.size() == 1) return values[0];
  const std::size_t split = split_of(values.size());
  return tree_sum(values.first(split)) + tree_sum(values.subspan(split));
}

}  // namespace fsdp
