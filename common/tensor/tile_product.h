/// @file
/// @ingroup tensor
/// Products of tiles in the first- or second-level cache, for attention. Each is far too small for
/// a BLAS call.
#pragma once

#include "tensor/simd.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fsdp::ops::tile {

/// Columns computed at a time. Right-hand sides are zero-padded to a multiple of it.
template <class T>
inline constexpr std::int64_t kColumns = 2 * simd::kLanes<T>;
/// Rows computed at a time: 6 × 2 vectors of sums, with their operands, fill 16 registers.
inline constexpr std::int64_t kRows = 6;

template <class T>
constexpr std::int64_t padded(std::int64_t width) {
  return (width + kColumns<T> - 1) / kColumns<T> * kColumns<T>;
}

/// Element (row, k) of the left operand is data[row * row_stride + k * depth_stride]. So it can be
/// a tile or its transpose.
template <class T>
struct Left {
  const T* data;
  std::int64_t row_stride, depth_stride;
};

/// The part of a row block that causality leaves nonzero.
struct Range {
  std::int64_t column_begin, depth_begin, depth_end;
};

/// c (Rows × kColumns) (+)= a · b, terms added one by one in the order of depth.
template <class T, int Rows>
inline void block(Left<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
                  std::int64_t depth, bool add) {
  using simd::Vec;
  constexpr std::int64_t kLanes = simd::kLanes<T>;
  Vec<T> left_sum[Rows], right_sum[Rows];
  simd::unroll<Rows>([&](auto r) {
    left_sum[r] = add ? simd::load<T>(c + r * ldc) : Vec<T>{};
    right_sum[r] = add ? simd::load<T>(c + r * ldc + kLanes) : Vec<T>{};
  });
  const T* at = a.data;
  for (std::int64_t k = 0; k < depth; ++k) {
    Vec<T> left = simd::load<T>(b), right = simd::load<T>(b + kLanes);
    simd::hold<T>(left);
    simd::hold<T>(right);
    simd::unroll<Rows>([&](auto r) {
      const Vec<T> factor = simd::splat<T>(at[r * a.row_stride]);
      left_sum[r] = simd::fma<T>(factor, left, left_sum[r]);
      right_sum[r] = simd::fma<T>(factor, right, right_sum[r]);
    });
    b += ldb;
    at += a.depth_stride;
  }
  simd::unroll<Rows>([&](auto r) {
    simd::store<T>(c + r * ldc, left_sum[r]);
    simd::store<T>(c + r * ldc + kLanes, right_sum[r]);
  });
}

/// block() for the last columns of an output, if they are fewer than kColumns.
template <class T, int Rows>
void narrow_block(Left<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
                  std::int64_t depth, bool add, std::int64_t columns) {
  T room[Rows * kColumns<T>] = {};
  for (int r = 0; add && r < Rows; ++r) {
    std::copy_n(c + r * ldc, columns, room + r * kColumns<T>);
  }
  block<T, Rows>(a, b, ldb, room, kColumns<T>, depth, add);
  for (int r = 0; r < Rows; ++r) std::copy_n(room + r * kColumns<T>, columns, c + r * ldc);
}

template <class T, int Rows>
void row_block(std::int64_t width, Left<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
               bool add, Range range) {
  a.data += range.depth_begin * a.depth_stride;
  b += range.depth_begin * ldb;
  const std::int64_t depth = range.depth_end - range.depth_begin;
  for (std::int64_t j = range.column_begin; j < width; j += kColumns<T>) {
    if (width - j >= kColumns<T>) {
      block<T, Rows>(a, b + j, ldb, c + j, ldc, depth, add);
    } else {
      narrow_block<T, Rows>(a, b + j, ldb, c + j, ldc, depth, add, width - j);
    }
  }
}

/// c (rows, width; row stride ldc) (+)= a · b, b having padded(width) columns of row stride ldb.
/// `range(begin, end)` gives the Range of the rows [begin, end).
template <class T, class RangeOf>
void product(std::int64_t rows, std::int64_t width, Left<T> a, const T* b, std::int64_t ldb, T* c,
             std::int64_t ldc, bool add, RangeOf range) {
  for (std::int64_t begin = 0; begin < rows; begin += kRows) {
    const std::int64_t count = std::min(kRows, rows - begin);
    const Left<T> from{a.data + begin * a.row_stride, a.row_stride, a.depth_stride};
    const Range part = range(begin, begin + count);
    T* to = c + begin * ldc;
    switch (count) {
      case 1:
        row_block<T, 1>(width, from, b, ldb, to, ldc, add, part);
        break;
      case 2:
        row_block<T, 2>(width, from, b, ldb, to, ldc, add, part);
        break;
      case 3:
        row_block<T, 3>(width, from, b, ldb, to, ldc, add, part);
        break;
      case 4:
        row_block<T, 4>(width, from, b, ldb, to, ldc, add, part);
        break;
      case 5:
        row_block<T, 5>(width, from, b, ldb, to, ldc, add, part);
        break;
      default:
        row_block<T, 6>(width, from, b, ldb, to, ldc, add, part);
    }
  }
}

/// to (rows, padded(width)) = from (rows, width; row stride) * factor, padded with zeros.
template <class T>
void pack(T* to, const T* from, std::int64_t stride, std::int64_t rows, std::int64_t width,
          T factor) {
  const std::int64_t ld = padded<T>(width);
  const simd::Vec<T> by = simd::splat<T>(factor);
  for (std::int64_t r = 0; r < rows; ++r) {
    simd::for_lanes<T>(width, [&](std::int64_t j, auto count) {
      simd::store<T>(to + r * ld + j, simd::load_n<T>(from + r * stride + j, count) * by);
    });
    const std::int64_t written = (width + simd::kLanes<T> - 1) / simd::kLanes<T>;
    for (std::int64_t j = written * simd::kLanes<T>; j < ld; ++j) to[r * ld + j] = 0;
  }
}

/// Transposes a kLanes × kLanes square: ever smaller off-diagonal quarters change places.
inline void transpose_square(simd::Vec<float> (&v)[8]) {
  const auto exchange = [&v]<int... I, int... J>(int a, int b, std::integer_sequence<int, I...>,
                                                 std::integer_sequence<int, J...>) {
    const simd::Vec<float> first = __builtin_shufflevector(v[a], v[b], I...);
    v[b] = __builtin_shufflevector(v[a], v[b], J...);
    v[a] = first;
  };
  for (int i = 0; i < 4; ++i) {
    exchange(i, i + 4, std::integer_sequence<int, 0, 1, 2, 3, 8, 9, 10, 11>{},
             std::integer_sequence<int, 4, 5, 6, 7, 12, 13, 14, 15>{});
  }
  for (int i : {0, 1, 4, 5}) {
    exchange(i, i + 2, std::integer_sequence<int, 0, 1, 8, 9, 4, 5, 12, 13>{},
             std::integer_sequence<int, 2, 3, 10, 11, 6, 7, 14, 15>{});
  }
  for (int i : {0, 2, 4, 6}) {
    exchange(i, i + 1, std::integer_sequence<int, 0, 8, 2, 10, 4, 12, 6, 14>{},
             std::integer_sequence<int, 1, 9, 3, 11, 5, 13, 7, 15>{});
  }
}
inline void transpose_square(simd::Vec<double> (&v)[4]) {
  const auto exchange = [&v]<int... I, int... J>(int a, int b, std::integer_sequence<int, I...>,
                                                 std::integer_sequence<int, J...>) {
    const simd::Vec<double> first = __builtin_shufflevector(v[a], v[b], I...);
    v[b] = __builtin_shufflevector(v[a], v[b], J...);
    v[a] = first;
  };
  for (int i = 0; i < 2; ++i) {
    exchange(i, i + 2, std::integer_sequence<int, 0, 1, 4, 5>{},
             std::integer_sequence<int, 2, 3, 6, 7>{});
  }
  for (int i : {0, 2}) {
    exchange(i, i + 1, std::integer_sequence<int, 0, 4, 2, 6>{},
             std::integer_sequence<int, 1, 5, 3, 7>{});
  }
}

/// to (width, ld) = transpose of from (rows, width; row stride) * factor; columns rows … ld are
/// zero. ld is a multiple of kLanes.
template <class T>
void pack_transposed(T* to, std::int64_t ld, const T* from, std::int64_t stride, std::int64_t rows,
                     std::int64_t width, T factor) {
  constexpr std::int64_t kLanes = simd::kLanes<T>;
  const simd::Vec<T> by = simd::splat<T>(factor);
  for (std::int64_t r = 0; r < ld; r += kLanes) {
    for (std::int64_t j = 0; j < width; j += kLanes) {
      const std::int64_t columns = std::min(kLanes, width - j);
      simd::Vec<T> square[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) {
        const T* row = from + (r + i) * stride + j;
        if (r + i >= rows) {
          square[i] = simd::Vec<T>{};
        } else if (columns == kLanes) {
          square[i] = simd::load<T>(row) * by;
        } else {
          square[i] = simd::load_some<T>(row, columns) * by;
        }
      }
      transpose_square(square);
      for (std::int64_t i = 0; i < columns; ++i) simd::store<T>(to + (j + i) * ld + r, square[i]);
    }
  }
}

}  // namespace fsdp::ops::tile
