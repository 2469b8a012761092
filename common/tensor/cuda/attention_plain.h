/// @file
/// @ingroup tensor
/// Tiles of rows in shared memory, widened to float32, for .cu files.
///
/// A block of 128 threads multiplies tiles of 32 rows. Eight neighboring lanes have two rows of the
/// result, y and y + 16, and each of them the columns x, x + 8, x + 16 and x + 24 of scores. So
/// what a row needs of its scores never leaves a warp. Of a head's columns a lane has every eighth
/// four, Groups of them. Of rows wider than 128 a tile has 16, and a lane half as much, so that
/// four tiles fit the shared memory of every card.
#pragma once

#include "device/cuda/warp_instructions.h"
#include "tensor/cuda/attention_extents.h"
#include "tensor/cuda/rows.h"
#include "tensor/cuda/unroll.h"

#include <cfloat>
#include <type_traits>

namespace fsdp::cuda::plain {

inline constexpr int kPlainThreads = 128;
template <int Groups>
inline constexpr int kTile = Groups == 8 ? 16 : 32;
template <int Groups>
inline constexpr int kRows = kTile<Groups> / 16;  // of scores, per thread
template <int Groups>
inline constexpr int kColumns = kTile<Groups> / 8;
template <int Groups>
inline constexpr int kScoreStride = kTile<Groups> + 1;

/// Elements of a row in shared memory: whole fours, then four more, so that eight rows lie in
/// different banks.
__host__ __device__ constexpr int stride_of(std::int64_t width) {
  return static_cast<int>((width + 3) / 4 * 4 + 4);
}
/// Bytes of `tiles` tiles of rows, `scores` tiles of scores, and two vectors.
template <int Groups>
__host__ __device__ constexpr std::size_t shared_nbytes(std::int64_t width, int tiles, int scores) {
  const int floats = kTile<Groups> * (tiles * stride_of(width) + scores * kScoreStride<Groups> + 2);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

template <int Groups>
inline constexpr std::int64_t kWidest = 32 * Groups;  ///< of the rows that these kernels have

struct Lanes {
  int x = static_cast<int>(threadIdx.x) % 8, y = static_cast<int>(threadIdx.x) / 8;
  __device__ int row(int i) const { return y + 16 * i; }
  __device__ int column(int j) const { return x + 8 * j; }
};

/// Rows [begin, end) of a tile from memory, where row 0 is at `from`; the others are zero.
template <int Groups, class T>
__device__ void load_tile(float* tile, const T* from, std::int64_t row_stride, std::int64_t begin,
                          std::int64_t end, std::int64_t width) {
  const int stride = stride_of(width), fours = stride / 4 - 1;
  for (int i = static_cast<int>(threadIdx.x); i < kTile<Groups> * fours; i += kPlainThreads) {
    const int row = i / fours, column = 4 * (i % fours);
    const bool is_there = row >= begin && row < end;
    float values[4];
    load_four(values, from + row * row_stride + column, is_there ? width - column : 0);
    store_four(tile + row * stride + column, values, 4);
  }
}

/// scores[i][j] = row(i) of a · row column(j) of b.
template <int Rows, int Columns>
__device__ __forceinline__ void multiply_rows(float (&scores)[Rows][Columns], const float* a,
                                              const float* b, int stride) {
  const Lanes at;
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Columns; ++j) scores[i][j] = 0;
  }
  for (int d = 0; d < stride - 4; d += 4) {
    float left[Rows][4], right[Columns][4];
    for (int i = 0; i < Rows; ++i) load_four(left[i], a + at.row(i) * stride + d, 4);
    for (int j = 0; j < Columns; ++j) load_four(right[j], b + at.column(j) * stride + d, 4);
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) {
        for (int n = 0; n < 4; ++n) scores[i][j] = fmaf(left[i][n], right[j][n], scores[i][j]);
      }
    }
  }
}

/// The rows of a lane in a tile of results: Groups fours of columns, every eighth.
template <int Groups>
struct Sums {
  float values[kRows<Groups>][Groups][4] = {};

  /// += weights · rows. Every lane that has these rows of weights must have written them.
  __device__ void add_product(const float* weights, const float* rows, int stride) {
    const Lanes at;
    for (int k = 0; k < kTile<Groups>; ++k) {
      float weight[kRows<Groups>];
      for (int i = 0; i < kRows<Groups>; ++i) {
        weight[i] = weights[at.row(i) * kScoreStride<Groups> + k];
      }
      FSDP_UNROLL
      for (int g = 0; g < Groups; ++g) {
        const int column = 4 * at.column(g);
        if (column >= stride - 4) continue;
        float row[4];
        load_four(row, rows + k * stride + column, 4);
        for (int i = 0; i < kRows<Groups>; ++i) {
          for (int n = 0; n < 4; ++n) values[i][g][n] = fmaf(weight[i], row[n], values[i][g][n]);
        }
      }
    }
  }
  __device__ void scale(int i, float factor) {
    FSDP_UNROLL
    for (int g = 0; g < Groups; ++g) {
      for (int n = 0; n < 4; ++n) values[i][g][n] *= factor;
    }
  }
  /// Row row(i), times `factor`, to memory.
  template <class T>
  __device__ void store(T* to, int i, float factor, std::int64_t width) const {
    FSDP_UNROLL
    for (int g = 0; g < Groups; ++g) {
      const std::int64_t column = 4 * Lanes().column(g);
      float scaled[4];
      for (int n = 0; n < 4; ++n) scaled[n] = values[i][g][n] * factor;
      store_four(to + column, scaled, width - column);
    }
  }
};

/// Σ dout · out of one row, in each of the eight lanes that have it: the term that the softmax
/// takes away from every gradient of a weight.
template <class T>
__device__ float delta_of_row(const T* dout, const T* out, std::int64_t width) {
  float sum = 0;
  for (std::int64_t column = 4 * Lanes().x; column < width; column += 32) {
    float a[4], b[4];
    load_four(a, dout + column, width - column);
    load_four(b, out + column, width - column);
    for (int n = 0; n < 4; ++n) sum = fmaf(a[n], b[n], sum);
  }
  return sum_of_lanes<8>(sum);
}

/// Calls body with the number of fours that a lane has of a row: 2, 4 or 8. 16-bit floats come here
/// with wide heads only.
template <class T, class Body>
void with_groups(std::int64_t width, Body body) {
  if (!std::is_same_v<T, float> || width > 128) {
    body(std::integral_constant<int, 8>{});
  } else if constexpr (std::is_same_v<T, float>) {
    if (width <= 64) {
      body(std::integral_constant<int, 2>{});
    } else {
      body(std::integral_constant<int, 4>{});
    }
  }
}

}  // namespace fsdp::cuda::plain
