/// @file
/// @ingroup tensor
/// product() of 16-bit floats. Both operands are widened while they are packed. The sums of a piece
/// stay float32 in the worker's scratch until the last chunk, so each element is rounded once.
#pragma once

#include "tensor/product_kernel.h"

namespace fsdp::ops {

/// What fits the scratch: columns of the right operand, tiles of the left one, and the sums.
template <class V>
struct WidenedSizes {
  using Tile = ProductSizes<float, V>;
  static constexpr std::int64_t kMostColumns = 96, kMostRows = 240;
  static constexpr std::int64_t kGroupTiles = 8;
  static constexpr std::int64_t kRight = kProductChunk * kMostColumns;
  static constexpr std::int64_t kLeft = kGroupTiles * Tile::kLeftTile;
  static constexpr std::int64_t kSums = kMostRows * kMostColumns;

  static_assert(kMostColumns % Tile::kColumns == 0 && kMostRows % Tile::kRows == 0);
  static_assert((kRight + kLeft + kSums) * static_cast<std::int64_t>(sizeof(float)) <=
                static_cast<std::int64_t>(kScratchBytes));
};

/// Tiles of `rows` of a chunk of the left operand, as register_tile() reads them.
template <class V, class H>
tile::Left<float> pack_left_tiles(float* to, Matrix<H> a, ProductRange rows, ProductRange depth,
                                  std::int64_t all_rows) {
  if (a.transposed) {
    pack_left<H, V>(to, a, rows, depth, all_rows);
    return {to, 1, ProductSizes<float, V>::kRows};
  }
  tile::pack(to, depth.size(), a.at(rows.begin, depth.begin), a.row_stride, rows.size(),
             depth.size(), 1);
  return {to, depth.size(), 1};
}

/// The piece `rows` × `columns` of c = or += a · b.
template <class V, class H>
void widened_piece(ProductExtents extents, Matrix<H> a, Matrix<H> b, H* c, Write write,
                   ProductRange rows, ProductRange columns, std::byte* scratch) {
  using Sizes = WidenedSizes<V>;
  using Tile = typename Sizes::Tile;
  constexpr std::int64_t kStride = Sizes::kMostColumns, kRows = Tile::kRows;
  auto* const right = reinterpret_cast<float*>(scratch);
  float* const left = right + Sizes::kRight;
  float* const sums = left + Sizes::kLeft;
  if (write == Write::add) {
    tile::pack(sums, kStride, c + rows.begin * extents.columns + columns.begin, extents.columns,
               rows.size(), columns.size(), 1);
  }
  for (std::int64_t k = 0; k < extents.depth; k += kProductChunk) {
    const ProductRange depth{k, std::min(extents.depth, k + kProductChunk)};
    pack_right<H, V>(right, b, depth, columns);
    for (std::int64_t i0 = rows.begin; i0 < rows.end; i0 += Sizes::kGroupTiles * kRows) {
      const ProductRange group{i0, std::min(rows.end, i0 + Sizes::kGroupTiles * kRows)};
      const tile::Left<float> packed = pack_left_tiles<V>(left, a, group, depth, extents.rows);
      for (std::int64_t j = 0; j < columns.size(); j += Tile::kColumns) {
        const float* const panel = right + j * depth.size();
        for (std::int64_t i = group.begin; i < group.end; i += kRows) {
          tile::Left<float> factors = packed;
          factors.data += a.transposed ? (i - group.begin) / kRows * Tile::kLeftTile
                                       : (i - group.begin) * depth.size();
          tile::with_rows<Tile::kRows>(std::min(kRows, group.end - i), [&](auto count) {
            tile::register_tile<V, count>(
                factors, panel, Tile::kColumns, sums + (i - rows.begin) * kStride + j, kStride,
                depth.size(), k == 0 ? write : Write::add, Tile::kColumns);
          });
        }
      }
    }
  }
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    H* const to = c + (rows.begin + i) * extents.columns + columns.begin;
    simd::for_lanes<H>(columns.size(), [=](std::int64_t j, auto count) {
      simd::store_n<H>(to + j, simd::load<float>(sums + i * kStride + j), count);
    });
  }
}

/// product() of H with vectors V of floats.
template <class V, class H>
void widened_product_with(ProductExtents extents, Matrix<H> a, Matrix<H> b, H* c, Write write,
                          ThreadPool& pool) {
  using Sizes = WidenedSizes<V>;
  for_each_piece(
      extents,
      piece_size<float, V>(extents, pool.threads(), {Sizes::kMostRows, Sizes::kMostColumns}), pool,
      [&](ProductRange rows, ProductRange columns, std::byte* scratch) {
        widened_piece<V>(extents, a, b, c, write, rows, columns, scratch);
      });
}

}  // namespace fsdp::ops
