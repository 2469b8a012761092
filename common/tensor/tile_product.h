/// @file
/// @ingroup tensor
/// Products of tiles in the first- or second-level cache, for attention. Each is far too small for
/// matmul().
#pragma once

#include "tensor/register_tile.h"
#include "tensor/tile_pack.h"

#include <algorithm>
#include <cstdint>

namespace fsdp::ops::tile {

/// Columns computed at a time. Right-hand sides are zero-padded to a multiple of it.
template <class T>
inline constexpr std::int64_t kColumns = kColumnsOf<simd::Vec<T>>;
/// Rows computed at a time: 6 × 2 vectors of sums, with their operands, fill 16 registers.
inline constexpr int kRows = 6;

template <class T>
constexpr std::int64_t padded(std::int64_t width) {
  return (width + kColumns<T> - 1) / kColumns<T> * kColumns<T>;
}

/// The rows of a left operand, where they lie or, if they have 16 bits, widened into `room`.
template <class T>
Left<Wide<T>> left_of(const T* rows, std::int64_t stride, std::int64_t count, std::int64_t width,
                      Wide<T>* room, std::int64_t ld) {
  if constexpr (kIsHalf<T>) {
    pack(room, ld, rows, stride, count, width, 1);
    return {room, ld, 1};
  } else {
    return {rows, stride, 1};
  }
}

/// The part of a row block that causality leaves nonzero.
struct Range {
  std::int64_t column_begin, depth_begin, depth_end;
};

/// c (rows, width; row stride ldc) = or += a · b, b having padded(width) columns of row stride ldb.
/// `range(begin, end)` gives the Range of the rows [begin, end).
template <class T, class RangeOf>
void product(std::int64_t rows, std::int64_t width, Left<T> a, const T* b, std::int64_t ldb, T* c,
             std::int64_t ldc, Write write, RangeOf range) {
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t count = std::min<std::int64_t>(kRows, rows - i);
    const Range part = range(i, i + count);
    const std::int64_t depth = part.depth_end - part.depth_begin;
    const Left<T> left = a.from(i, part.depth_begin);
    with_rows<kRows>(count, [&](auto of_tile) {
      for (std::int64_t j = part.column_begin; j < width; j += kColumns<T>) {
        register_tile<simd::Vec<T>, of_tile>(left, b + part.depth_begin * ldb + j, ldb,
                                             c + i * ldc + j, ldc, depth, write, width - j);
      }
    });
  }
}

}  // namespace fsdp::ops::tile
