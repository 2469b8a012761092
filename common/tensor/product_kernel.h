/// @file
/// @ingroup tensor
/// How product() works: the output is cut into pieces; of each, the operands are packed chunk by
/// chunk, and multiplied tile by tile. A template over the vector, so that tests can try them all.
#pragma once

#include "tensor/product.h"
#include "tensor/register_tile.h"
#include "tensor/tile_pack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace fsdp::ops {

/// What fits where, for vectors V of T.
template <class T, class V>
struct ProductSizes {
  static constexpr auto kElement = static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t kColumns = tile::kColumnsOf<V>;
  /// Rows of a register tile: 2 × kRows sums, two vectors of the right operand and a factor.
  static constexpr int kRows = simd::kRegisters == 32 ? 8 : 6;
  /// Columns of the right operand that are packed at a time: a chunk of them stays in the
  /// second-level cache.
  static constexpr std::int64_t kBlockColumns = 768 / kElement;
  /// Register tiles of a transposed left operand that are packed at a time.
  static constexpr std::int64_t kGroupTiles = 224 / kElement / kRows;
  /// Elements of such a tile, and room for a vector: whole vectors are written past its end.
  static constexpr std::int64_t kLeftTile = kProductChunk * kRows + simd::kLanes<T>;

  static_assert((kProductChunk * kBlockColumns + kGroupTiles * kLeftTile) * kElement <=
                static_cast<std::int64_t>(kScratchBytes));
};

/// Elements [begin, end) of an extent.
struct ProductRange {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// Packs b(depth, columns) into panels of kColumns, each (depth, kColumns), zero-padded. An operand
/// that is not transposed is read row by row, as it lies in memory: panel by panel, its short and
/// distant pieces would not be there in time.
template <class T, class V>
void pack_right(Wide<T>* to, Matrix<T> b, ProductRange depth, ProductRange columns) {
  constexpr std::int64_t kColumns = tile::kColumnsOf<V>;
  const std::int64_t panel = depth.size() * kColumns;
  std::int64_t j = columns.begin;
  if (!b.transposed) {
    const std::int64_t whole = columns.size() / kColumns;
    const T* from = b.at(depth.begin, columns.begin);
    for (std::int64_t k = 0; k < depth.size(); ++k, from += b.row_stride) {
      for (std::int64_t p = 0; p < whole; ++p) {
        simd::unroll<static_cast<int>(kColumns / simd::kLanes<T>)>([&](auto v) {
          simd::store<Wide<T>>(to + p * panel + k * kColumns + v * simd::kLanes<T>,
                               simd::load<T>(from + p * kColumns + v * simd::kLanes<T>));
        });
      }
    }
    j += whole * kColumns;
    to += whole * panel;
  }
  for (; j < columns.end; j += kColumns, to += panel) {
    const std::int64_t count = std::min(kColumns, columns.end - j);
    const T* from = b.at(depth.begin, j);
    if (b.transposed) {
      tile::pack_transposed(to, kColumns, from, b.row_stride, count, depth.size(), 1);
    } else {
      tile::pack(to, kColumns, from, b.row_stride, depth.size(), count, 1);
    }
  }
}

/// Packs a(rows, depth) of a transposed left operand into tiles of kRows rows, each (depth, kRows).
/// What the last tile holds beyond its rows is never used. `all_rows` are those of the operand.
template <class T, class V>
void pack_left(Wide<T>* to, Matrix<T> a, ProductRange rows, ProductRange depth,
               std::int64_t all_rows) {
  using Sizes = ProductSizes<Wide<T>, V>;
  constexpr std::int64_t kLanes = simd::kLanes<T>;
  constexpr int kVectors = static_cast<int>((Sizes::kRows + kLanes - 1) / kLanes);
  for (std::int64_t i = rows.begin; i < rows.end; i += Sizes::kRows, to += Sizes::kLeftTile) {
    const std::int64_t count = std::min<std::int64_t>(Sizes::kRows, rows.end - i);
    // Whole vectors are faster. What they write past their rows is overwritten by the next ones.
    const bool whole = i + kVectors * kLanes <= all_rows;
    const T* from = a.at(i, depth.begin);
    Wide<T>* row = to;
    for (std::int64_t k = 0; k < depth.size(); ++k, from += a.row_stride, row += Sizes::kRows) {
      if (whole) {
        simd::unroll<kVectors>([&](auto v) {
          simd::store<Wide<T>>(row + v * kLanes, simd::load<T>(from + v * kLanes));
        });
      } else {
        for (std::int64_t r = 0; r < count; ++r) row[r] = static_cast<Wide<T>>(from[r]);
      }
    }
  }
}

/// Asks for the cache lines of a(rows, depth) of a transposed operand, some at a time, while
/// something else is computed.
template <class T>
class Ahead {
 public:
  Ahead(Matrix<T> a, ProductRange rows, ProductRange depth)
      : row_(a.at(rows.begin, depth.begin)),
        stride_(a.row_stride),
        rows_left_(rows.size() > 0 ? depth.size() : 0),
        width_(rows.size()) {}

  std::int64_t lines() const { return rows_left_ * ((width_ + kLine - 1) / kLine); }

  void fetch(std::int64_t lines) {
    for (; lines > 0 && rows_left_ > 0; --lines) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < width_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_left_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const T* row_;  // as it lies in memory
  std::int64_t stride_, rows_left_, width_, at_ = 0;
};

/// The piece `rows` × `columns` of c = or += a · b; `columns` are at most kBlockColumns. `scratch`
/// has kScratchBytes.
template <class V, class T>
void product_piece(ProductExtents extents, Matrix<T> a, Matrix<T> b, T* c, Write write,
                   ProductRange rows, ProductRange columns, std::byte* scratch) {
  using Sizes = ProductSizes<T, V>;
  T* const right = reinterpret_cast<T*>(scratch);
  T* const left = right + kProductChunk * Sizes::kBlockColumns;
  const std::int64_t group_rows = a.transposed ? Sizes::kGroupTiles * Sizes::kRows : rows.size();
  const std::int64_t panels = (columns.size() + Sizes::kColumns - 1) / Sizes::kColumns;
  for (std::int64_t k = 0; k < extents.depth; k += kProductChunk) {
    const ProductRange depth{k, std::min(extents.depth, k + kProductChunk)};
    pack_right<T, V>(right, b, depth, columns);
    for (std::int64_t i0 = rows.begin; i0 < rows.end; i0 += group_rows) {
      const ProductRange group{i0, std::min(rows.end, i0 + group_rows)};
      const ProductRange next{group.end, std::min(rows.end, group.end + group_rows)};
      if (a.transposed) pack_left<T, V>(left, a, group, depth, extents.rows);
      Ahead<T> ahead(a, a.transposed ? next : ProductRange{0, 0}, depth);
      const std::int64_t tiles = (group.size() + Sizes::kRows - 1) / Sizes::kRows * panels;
      const std::int64_t lines_per_tile = ahead.lines() / tiles + 1;
      // A panel stays in the first-level cache while all rows of the group pass it.
      for (std::int64_t j = columns.begin; j < columns.end; j += Sizes::kColumns) {
        const T* const panel = right + (j - columns.begin) * depth.size();
        for (std::int64_t i = group.begin; i < group.end; i += Sizes::kRows) {
          ahead.fetch(lines_per_tile);
          const T* const packed = left + (i - group.begin) / Sizes::kRows * Sizes::kLeftTile;
          const tile::Left<T> factors = a.transposed ? tile::Left<T>{packed, 1, Sizes::kRows}
                                                     : tile::Left<T>{a.at(i, k), a.row_stride, 1};
          tile::with_rows<Sizes::kRows>(
              std::min<std::int64_t>(Sizes::kRows, group.end - i), [&](auto count) {
                tile::register_tile<V, count>(
                    factors, panel, Sizes::kColumns, c + i * extents.columns + j, extents.columns,
                    depth.size(), k == 0 ? write : Write::add, columns.end - j);
              });
        }
      }
    }
  }
}

/// Rows and columns of a piece.
struct PieceSize {
  std::int64_t rows, columns;
};

inline std::int64_t parts_of(std::int64_t extent, std::int64_t size) {
  return (extent + size - 1) / size;
}

/// Pieces of much the same size, at most `most`, and a multiple of `step`.
inline std::int64_t even_size(std::int64_t extent, std::int64_t most, std::int64_t step) {
  return parts_of(parts_of(extent, parts_of(extent, most)), step) * step;
}

/// So many pieces that a slow core costs no more than its share, if they are worth handing out. The
/// more rows a piece has, the less it costs to pack its columns of the right operand. None is
/// larger than `most`.
template <class T, class V>
PieceSize piece_size(ProductExtents extents, int threads, PieceSize most) {
  using Sizes = ProductSizes<T, V>;
  constexpr std::int64_t kFewestRows = 4 * Sizes::kColumns;
  constexpr double kWorthSharing = 2e5;  // flops; less takes no longer than handing it over
  constexpr std::int64_t kPiecesPerThread = 8;
  const std::int64_t columns = even_size(extents.columns, most.columns, Sizes::kColumns);
  std::int64_t rows = std::min(extents.rows, most.rows);
  if (threads > 1) {
    const std::int64_t column_blocks = parts_of(extents.columns, columns);
    const std::int64_t wanted = parts_of(kPiecesPerThread * threads, column_blocks);
    const double flops_per_row = 2.0 * static_cast<double>(columns * extents.depth);
    const auto worth = 1 + static_cast<std::int64_t>(kWorthSharing / flops_per_row);
    const std::int64_t one_each = parts_of(extents.rows, parts_of(threads, column_blocks));
    rows = std::min(
        rows, std::max({parts_of(extents.rows, wanted), std::min(kFewestRows, one_each), worth}));
    // Three pieces take two threads as long as four would.
    const std::int64_t row_blocks = parts_of(extents.rows, rows);
    const std::int64_t round = threads / std::gcd(threads, column_blocks);
    if (row_blocks * column_blocks > 1) {
      rows = parts_of(extents.rows, parts_of(row_blocks, round) * round);
    }
  }
  return {even_size(extents.rows, rows, Sizes::kRows), columns};
}

/// Calls body(rows, columns, scratch) for every piece.
template <class Body>
void for_each_piece(ProductExtents extents, PieceSize size, ThreadPool& pool, Body&& body) {
  const std::int64_t column_blocks = parts_of(extents.columns, size.columns);
  const std::int64_t pieces = parts_of(extents.rows, size.rows) * column_blocks;
  // Neighbors in a row of pieces share its part of the left operand, which is in the cache by then.
  pool.for_each(pieces, [&](std::int64_t piece, std::byte* scratch) {
    const std::int64_t i = piece / column_blocks * size.rows;
    const std::int64_t j = piece % column_blocks * size.columns;
    body(ProductRange{i, std::min(extents.rows, i + size.rows)},
         ProductRange{j, std::min(extents.columns, j + size.columns)}, scratch);
  });
}

/// product() with vectors V.
template <class V, class T>
void product_with(ProductExtents extents, Matrix<T> a, Matrix<T> b, T* c, Write write,
                  ThreadPool& pool) {
  using Sizes = ProductSizes<T, V>;
  const PieceSize most{16 * Sizes::kColumns, Sizes::kBlockColumns};
  for_each_piece(extents, piece_size<T, V>(extents, pool.threads(), most), pool,
                 [&](ProductRange rows, ProductRange columns, std::byte* scratch) {
                   product_piece<V>(extents, a, b, c, write, rows, columns, scratch);
                 });
}

}  // namespace fsdp::ops
