/// @file
/// @ingroup tensor
/// The innermost product: a tile of the output that stays in registers while the depth runs. Shared
/// by matmul() and attention.
#pragma once

#include "tensor/ops.h"
#include "tensor/simd.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace fsdp::ops::tile {

/// Element (row, k) of the left operand is data[row * row_stride + k * depth_stride]. So it can be
/// a tile or its transpose.
template <class T>
struct Left {
  const T* data;
  std::int64_t row_stride, depth_stride;

  Left from(std::int64_t row, std::int64_t k) const {
    return {data + row * row_stride + k * depth_stride, row_stride, depth_stride};
  }
};

/// Two vectors of columns.
template <class V>
inline constexpr std::int64_t kColumnsOf = 2 * simd::kLanesOf<V>;

/// register_tile() for all columns. A function of its own, because GCC puts the lanes of fma() into
/// vectors in a small function only; and of numbers, because a Left lies in memory when it is
/// passed, where reading it at once waits for all earlier stores.
template <class V, int Rows, class T>
[[gnu::noinline]] void full_register_tile(const T* a, std::int64_t row_stride,
                                          std::int64_t depth_stride, const T* b, std::int64_t ldb,
                                          T* c, std::int64_t ldc, std::int64_t depth, Write write) {
  constexpr std::int64_t kLanes = simd::kLanesOf<V>;
  V left_sum[Rows] = {}, right_sum[Rows] = {};
  simd::unroll<Rows>([&](auto r) {
    __builtin_prefetch(c + r * ldc, 1);
    __builtin_prefetch(c + r * ldc + 2 * kLanes - 1, 1);
  });
  for (std::int64_t k = 0; k < depth; ++k) {
    V left = simd::load<T, V>(b), right = simd::load<T, V>(b + kLanes);
    simd::hold(left);
    simd::hold(right);
    simd::unroll<Rows>([&](auto r) {
      const V factor = simd::splat<T, V>(a[r * row_stride]);
      left_sum[r] = simd::fma<T>(factor, left, left_sum[r]);
      right_sum[r] = simd::fma<T>(factor, right, right_sum[r]);
    });
    b += ldb;
    a += depth_stride;
  }
  if (write == Write::add) {
    simd::unroll<Rows>([&](auto r) {
      left_sum[r] = simd::load<T, V>(c + r * ldc) + left_sum[r];
      right_sum[r] = simd::load<T, V>(c + r * ldc + kLanes) + right_sum[r];
    });
  }
  simd::unroll<Rows>([&](auto r) {
    simd::store<T>(c + r * ldc, left_sum[r]);
    simd::store<T>(c + r * ldc + kLanes, right_sum[r]);
  });
}

/// register_tile() for fewer columns than kColumnsOf<V>.
template <class V, int Rows, class T>
void narrow_register_tile(Left<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
                          std::int64_t depth, Write write, std::int64_t columns) {
  constexpr std::int64_t kColumns = kColumnsOf<V>;
  T room[Rows * kColumns] = {};
  if (write == Write::add) {
    for (int r = 0; r < Rows; ++r) std::copy_n(c + r * ldc, columns, room + r * kColumns);
  }
  full_register_tile<V, Rows>(a.data, a.row_stride, a.depth_stride, b, ldb, room, kColumns, depth,
                              write);
  for (int r = 0; r < Rows; ++r) std::copy_n(room + r * kColumns, columns, c + r * ldc);
}

/// c (Rows × kColumnsOf<V>) = or += a · b, or the first `columns` columns of it. Each element of
/// a · b is one chain of fused multiply-adds, which begins at zero and takes the terms in the order
/// of depth. Row k of b begins at b + k * ldb and is whole, row r of c begins at c + r * ldc.
template <class V, int Rows, class T>
inline void register_tile(Left<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
                          std::int64_t depth, Write write, std::int64_t columns) {
  if (columns >= kColumnsOf<V>) {
    full_register_tile<V, Rows>(a.data, a.row_stride, a.depth_stride, b, ldb, c, ldc, depth, write);
  } else {
    narrow_register_tile<V, Rows>(a, b, ldb, c, ldc, depth, write, columns);
  }
}

/// body(integral_constant `rows`), 1 <= rows <= Most: each number of rows is code of its own.
template <int Most, class Body>
void with_rows(std::int64_t rows, Body&& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    ((rows == I + 1 ? body(std::integral_constant<int, I + 1>{}) : void()), ...);
  }
  (std::make_integer_sequence<int, Most>{});
}

}  // namespace fsdp::ops::tile
