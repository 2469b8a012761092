/// @file
/// @ingroup tensor
/// Tiles of 64 rows of 16-bit floats in shared memory, multiplied by tensor cores, for .cu files.
///
/// A block has four warps, and each warp 16 rows of the result. Which element of a tile of 16 x 16
/// a lane holds is not specified, so scores go through shared memory: there two lanes have a row.
/// All that a warp writes and reads in between lies in its own rows.
#pragma once

#include "tensor/cuda/attention_extents.h"
#include "tensor/cuda/rows.h"
#include "tensor/cuda/unroll.h"

#include <mma.h>

#include <cfloat>
#include <type_traits>

namespace fsdp::cuda::tensor_cores {

namespace wmma = nvcuda::wmma;

inline constexpr int kTile = 64, kWarpRows = 16, kTensorThreads = 128;
inline constexpr int kAllChunks = kTile / 16;  // of a row of scores
inline constexpr int kScoreStride = 68;        // floats
inline constexpr int kWeightStride = 72;       // 16-bit floats

/// Elements of a row in shared memory: whole chunks of 16, then eight more, so that eight rows lie
/// in different banks.
__host__ __device__ inline int stride_of(std::int64_t width) {
  return static_cast<int>((width + 15) / 16 * 16 + 8);
}
/// Bytes of `tiles` tiles of rows, one tile of scores, `weights` tiles of weights, and two vectors.
inline std::size_t shared_nbytes(std::int64_t width, int tiles, int weights) {
  const int halves = kTile * (tiles * stride_of(width) + weights * kWeightStride);
  const int floats = kTile * (kScoreStride + 2);
  return static_cast<std::size_t>(halves) * 2 + static_cast<std::size_t>(floats) * sizeof(float);
}

/// Where a thread is: its warp has the rows from 16 · warp on, it has the row 16 · warp + row, and
/// of every four columns two.
struct Lanes {
  int warp = static_cast<int>(threadIdx.x) / 32;
  int row = static_cast<int>(threadIdx.x) % 32 / 2, half = static_cast<int>(threadIdx.x) % 2;

  __device__ int row_of_tile() const { return kWarpRows * warp + row; }
  __device__ int column(int i) const { return 4 * (i / 2) + 2 * half + i % 2; }
};
inline constexpr int kColumnsOfLane = kTile / 2;

/// Elements that are moved by one instruction.
template <class T, int N>
struct alignas(N * sizeof(T)) Several {
  T values[N];
};

/// Rows [begin, end) of a tile from memory, where row 0 is at `from`; the others, and the columns
/// behind `width`, are zero.
template <class T>
__device__ void load_tile(T* tile, const T* from, std::int64_t row_stride, std::int64_t begin,
                          std::int64_t end, std::int64_t width) {
  using Eight = Several<T, 8>;
  const int stride = stride_of(width), eights = stride / 8 - 1;
  const bool vectorized = row_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * eights; i += kTensorThreads) {
    const int row = i / eights, column = 8 * (i % eights);
    const T* at = from + row * row_stride + column;
    const std::int64_t count = row >= begin && row < end ? width - column : 0;
    Eight eight;
    if (vectorized && count >= 8) {
      eight = *reinterpret_cast<const Eight*>(at);
    } else {
      for (int n = 0; n < 8; ++n) eight.values[n] = n < count ? at[n] : narrow<T>(0.0F);
    }
    *reinterpret_cast<Eight*>(tile + row * stride + column) = eight;
  }
}

template <class T>
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <class T>
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
template <class T>
using RightTransposed = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major>;
using Sum = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

/// scores (16, 64) = rows (16, width) · tile (64, width)ᵀ, columns of the chunks [begin, end) only.
/// Lanes read them after a __syncwarp.
template <class T>
__device__ __forceinline__ void multiply_rows(float* scores, const T* rows, const T* tile,
                                              int stride, int begin, int end) {
  Sum sums[kAllChunks];
  FSDP_UNROLL
  for (int j = 0; j < kAllChunks; ++j) wmma::fill_fragment(sums[j], 0.0F);
  for (int d = 0; d < stride - 8; d += 16) {
    Left<T> left;
    wmma::load_matrix_sync(left, rows + d, static_cast<unsigned>(stride));
    FSDP_UNROLL
    for (int j = 0; j < kAllChunks; ++j) {
      if (j < begin || j >= end) continue;
      RightTransposed<T> right;
      wmma::load_matrix_sync(right, tile + 16 * j * stride + d, static_cast<unsigned>(stride));
      wmma::mma_sync(sums[j], left, right, sums[j]);
    }
  }
  FSDP_UNROLL
  for (int j = 0; j < kAllChunks; ++j) {
    if (j < begin || j >= end) continue;
    wmma::store_matrix_sync(scores + 16 * j, sums[j], kScoreStride, wmma::mem_row_major);
  }
}

/// 16 rows of results, of up to 16 · Chunks columns.
template <int Chunks>
struct Sums {
  Sum chunks[Chunks];

  __device__ Sums() {
    FSDP_UNROLL
    for (int c = 0; c < Chunks; ++c) wmma::fill_fragment(chunks[c], 0.0F);
  }
  /// += weights (16, 64) · tile (64, width), terms of the chunks [begin, end) only.
  template <class T>
  __device__ __forceinline__ void add_product(const T* weights, const T* tile, int stride,
                                              int begin, int end) {
    for (int k = begin; k < end; ++k) {
      Left<T> left;
      wmma::load_matrix_sync(left, weights + 16 * k, kWeightStride);
      FSDP_UNROLL
      for (int c = 0; c < Chunks; ++c) {
        if (16 * c >= stride - 8) continue;
        Right<T> right;
        wmma::load_matrix_sync(right, tile + 16 * k * stride + 16 * c,
                               static_cast<unsigned>(stride));
        wmma::mma_sync(chunks[c], left, right, chunks[c]);
      }
    }
  }
  /// The row of each lane, times `factor`, to its `to`, if it `is_there`. Goes through `scores`,
  /// (16, 64) of this warp.
  template <class T>
  __device__ void store(T* to, bool is_there, float factor, std::int64_t width, float* scores) {
    const Lanes at;
    const int stride = stride_of(width);
    FSDP_UNROLL
    for (int c0 = 0; c0 < Chunks; c0 += kAllChunks) {
      FSDP_UNROLL
      for (int c = c0; c < c0 + kAllChunks; ++c) {
        if (16 * c >= stride - 8) continue;
        wmma::store_matrix_sync(scores + 16 * (c - c0), chunks[c], kScoreStride,
                                wmma::mem_row_major);
      }
      __syncwarp();
      const std::int64_t left = width - 16 * c0;
      for (int i = 4 * at.half; i < kTile && i < left && is_there; i += 8) {
        float values[4];
        for (int n = 0; n < 4; ++n) values[n] = scores[at.row * kScoreStride + i + n] * factor;
        store_four(to + 16 * c0 + i, values, left - i);
      }
      __syncwarp();
    }
  }
};

/// Σ dout · out of one row, in both lanes that have it.
template <class T>
__device__ float delta_of_row(const T* dout, const T* out, std::int64_t width) {
  float sum = 0;
  for (std::int64_t column = 4 * Lanes().half; column < width; column += 8) {
    float a[4], b[4];
    load_four(a, dout + column, width - column);
    load_four(b, out + column, width - column);
    for (int n = 0; n < 4; ++n) sum = fmaf(a[n], b[n], sum);
  }
  return sum_of_lanes<2>(sum);
}

/// Calls body with the number of chunks that a row of results may have: 4 or 8.
template <class Body>
void with_chunks(std::int64_t width, Body body) {
  if (width <= 64) {
    body(std::integral_constant<int, 4>{});
  } else {
    body(std::integral_constant<int, 8>{});
  }
}

}  // namespace fsdp::cuda::tensor_cores
