/// @file
/// @ingroup tensor
/// Operands of a product, copied to where its tiles read them: in order, padded with zeros, and
/// widened.
#pragma once

#include "tensor/simd.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fsdp::ops::tile {

/// to (rows, ld) = from (rows, width; row stride) * factor; columns width … ld are zero.
template <class T>
void pack(Wide<T>* to, std::int64_t ld, const T* from, std::int64_t stride, std::int64_t rows,
          std::int64_t width, Wide<T> factor) {
  const simd::Vec<T> by = simd::splat<T>(factor);
  for (std::int64_t r = 0; r < rows; ++r) {
    simd::for_lanes<T>(width, [&](std::int64_t j, auto count) {
      simd::store<Wide<T>>(to + r * ld + j, simd::load_n<T>(from + r * stride + j, count) * by);
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

/// to (width, ld) = transpose of from (rows, width; row stride) * factor, in the columns
/// [first, first + rows); the others are zero. ld is a multiple of kLanes.
template <class T>
void pack_transposed(Wide<T>* to, std::int64_t ld, const T* from, std::int64_t stride,
                     std::int64_t rows, std::int64_t width, Wide<T> factor,
                     std::int64_t first = 0) {
  constexpr std::int64_t kLanes = simd::kLanes<T>;
  const simd::Vec<T> by = simd::splat<T>(factor);
  for (std::int64_t r = 0; r < ld; r += kLanes) {
    for (std::int64_t j = 0; j < width; j += kLanes) {
      const std::int64_t columns = std::min(kLanes, width - j);
      simd::Vec<T> square[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) {
        const std::int64_t row = r + i - first;
        if (row < 0 || row >= rows) {
          square[i] = simd::Vec<T>{};
        } else if (columns == kLanes) {
          square[i] = simd::load<T>(from + row * stride + j) * by;
        } else {
          square[i] = simd::load_some<T>(from + row * stride + j, columns) * by;
        }
      }
      transpose_square(square);
      for (std::int64_t i = 0; i < columns; ++i) {
        simd::store<Wide<T>>(to + (j + i) * ld + r, square[i]);
      }
    }
  }
}

}  // namespace fsdp::ops::tile
