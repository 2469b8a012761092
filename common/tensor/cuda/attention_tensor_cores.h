/// @file
/// @ingroup tensor
/// Tiles of rows of 16-bit floats in shared memory, and a warp's products of them, for .cu files.
///
/// A block has four warps. A warp has 16 · M rows of the result, and all that it computes stays in
/// its registers: scores, weights, sums. Shared memory has only what is loaded. A product has D =
/// 32, 64, 96 or 128 columns of a row, and zeros behind the width.
///
/// Kernels load and store 16 bytes at once if the width is a multiple of 8 and all arrays begin at
/// multiples of 16 bytes (kIsWhole), and else element by element, with D = 64 or 128. They compute
/// the same, so the bits are the same.
#pragma once

#include "device/cuda/warp_instructions.h"
#include "tensor/cuda/attention_extents.h"
#include "tensor/cuda/rows.h"
#include "tensor/cuda/unroll.h"

#include <cfloat>
#include <initializer_list>
#include <type_traits>

namespace fsdp::cuda::tensor_cores {

inline constexpr int kTensorThreads = 128, kWarps = 4;

/// Of a row of D elements in a tile. A row of 32 or 96 has as much room as one of 64 or 128, so
/// that the exchange below stays inside it.
template <int D>
inline constexpr int kRowNbytes = D <= 64 ? 128 : 256;

/// Where 16 bytes of a row of D elements lie in its tile. These units of a row are exchanged by the
/// row's last three bits, so that one unit of eight rows lies in different banks: both for ldmatrix
/// and for what fills a tile row by row. Tiles begin at multiples of 256 bytes, so
/// place(row, unit + 2i) == place(row, unit) ^ 32i for an even `unit` or an odd one.
template <int D>
__host__ __device__ constexpr int place(int row, int unit) {
  return row * kRowNbytes<D> + ((unit ^ (row & 7)) << 4);
}
/// Neighboring lanes that load or store a row, one unit each. Of 96 elements, four lanes have none.
template <int D>
inline constexpr int kLanesOfRow = D == 96 ? 16 : D / 8;

template <class T>
struct alignas(16) Unit {
  T values[8];
};

/// Where a thread is. All but `warp` is computed where it is used, to take no registers meanwhile.
struct Lane {
  /// By a shuffle, so that nvcc knows that it is the same for the whole warp: otherwise it guards
  /// each shuffle behind a branch on it.
  int warp = __shfl_sync(kWholeWarp, static_cast<int>(threadIdx.x) / 32, 0);

  __device__ int index() const { return static_cast<int>(computed_here(threadIdx.x) % 32U); }
  /// Of eight rows of a product it has one, and of eight columns two.
  __device__ int row() const { return index() / 4; }
  __device__ int column() const { return index() % 4 * 2; }
};

/// The address that a lane passes to ldmatrix: of A, and of a B that is transposed …
template <int D>
__device__ __forceinline__ SharedAddress lane_of_a(SharedAddress tile, const Lane& lane) {
  const int i = lane.index();
  return tile + place<D>(i % 16, i / 16);
}
/// … and of a B that is not.
template <int D>
__device__ __forceinline__ SharedAddress lane_of_b(SharedAddress tile, const Lane& lane) {
  const int i = lane.index();
  return tile + place<D>(i % 8 + i / 16 * 8, i / 8 % 2);
}

/// Loads rows [begin, end) of a tile of Rows rows, where row 0 is at `from`; the others are zero.
/// They are there after cp_async_wait() and a barrier.
template <bool kIsWhole, int D, int Rows, class T>
__device__ __forceinline__ void load_tile(SharedAddress tile, const T* from, std::int64_t stride,
                                          int end, std::int64_t width, int begin = 0) {
  constexpr int kLanes = kLanesOfRow<D>, kAtOnce = kTensorThreads / kLanes;
  const unsigned thread = computed_here(threadIdx.x);
  const int row = static_cast<int>(thread / kLanes), unit = static_cast<int>(thread % kLanes);
  if (unit >= D / 8) return;
  if constexpr (kIsWhole) {
    if (8 * unit >= static_cast<int>(width)) end = 0;
    const int step = static_cast<int>(stride);  // small enough, by with_way()
    const T* const at = from + (row * step + 8 * unit);
    FSDP_UNROLL
    for (int i = 0; i < Rows; i += kAtOnce) {
      const bool is_there = row < end - i && row >= begin - i;
      cp_async<16>(tile + place<D>(row + i, unit), at + i * step, is_there);
    }
  } else {
    const T* const at = from + row * stride + 8 * unit;
    for (int i = 0; i < Rows; i += kAtOnce) {
      const std::int64_t count = row < end - i && row >= begin - i ? width - 8 * unit : 0;
      Unit<T> loaded;
      FSDP_UNROLL
      for (int n = 0; n < 8; ++n) loaded.values[n] = n < count ? at[i * stride + n] : T(0.0F);
      store_vector(tile + place<D>(row + i, unit), loaded);
    }
  }
}

/// The left side of a product: 16 · M rows of D elements, loaded when they are needed …
/// Behind `rows` by a constant, so that several tiles need one register.
template <int D, int M, int Behind = 0>
struct SharedRows {
  SharedAddress at;

  __device__ SharedRows(SharedAddress rows, const Lane& lane) : at(lane_of_a<D>(rows, lane)) {}
  template <int Other>
  __device__ explicit SharedRows(const SharedRows<D, M, Other>& others) : at(others.at) {}
  __device__ __forceinline__ void get(unsigned (&a)[M][4], int chunk) const {
    const SharedAddress of_chunk = computed_here(at) ^ static_cast<SharedAddress>(chunk << 5);
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) ldmatrix_x4(a[m], of_chunk + m * 16 * kRowNbytes<D> + Behind);
  }
};
/// … or once.
template <int D, int M>
struct HeldRows {
  unsigned all[D / 16][M][4];

  __device__ __forceinline__ void load(const SharedRows<D, M>& rows) {
    FSDP_UNROLL
    for (int chunk = 0; chunk < D / 16; ++chunk) rows.get(all[chunk], chunk);
  }
  __device__ __forceinline__ void get(unsigned (&a)[M][4], int chunk) const {
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      FSDP_UNROLL
      for (int i = 0; i < 4; ++i) a[m][i] = all[chunk][m][i];
    }
  }
};

/// 16 · M rows of N columns, in a warp's registers.
template <class T, int M, int N>
struct Sums {
  float at[M][N / 8][4] = {};

  /// -infinity where `is_hidden`(column - row), counted from the lane's first element, so that nvcc
  /// compares one register with constants.
  template <class IsHidden>
  __device__ __forceinline__ void hide(IsHidden is_hidden) {
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      FSDP_UNROLL
      for (int j = 0; j < N / 8; ++j) {
        FSDP_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (is_hidden(8 * j + i % 2 - (16 * m + 8 * (i / 2)))) at[m][j][i] = -INFINITY;
        }
      }
    }
  }
  /// += rows (16 · M, D) · tile (N, D)ᵀ. The tile begins Behind bytes after `tile`. They are added
  /// behind the exchange, which multiples of 256 do not change, so that such tiles share registers.
  template <int D, int Behind = 0, class Rows>
  __device__ __forceinline__ void add_transposed(const Rows& rows, SharedAddress tile,
                                                 const Lane& lane) {
    static_assert(Behind % 256 == 0);
    const SharedAddress right = lane_of_b<D>(tile, lane);
    FSDP_UNROLL
    for (int chunk = 0; chunk < D / 16; ++chunk) {
      unsigned a[M][4];
      rows.get(a, chunk);
      const SharedAddress of_chunk = (right ^ static_cast<SharedAddress>(chunk << 5)) + Behind;
      FSDP_UNROLL
      for (int j = 0; j < N / 8; j += 2) {
        unsigned b[4];
        ldmatrix_x4(b, of_chunk + j * 8 * kRowNbytes<D>);
        add_pair(j, a, b);
      }
    }
  }
  /// += weights (16 · M, K), each rounded to T, · tile (K, N), which begins as above.
  template <int Behind = 0, int K>
  __device__ __forceinline__ void add_product(const Sums<T, M, K>& weights, SharedAddress tile,
                                              const Lane& lane) {
    static_assert(Behind % 256 == 0);
    const SharedAddress right = lane_of_a<N>(tile, lane);
    FSDP_UNROLL
    for (int k = 0; k < K / 16; ++k) {
      unsigned a[M][4];
      FSDP_UNROLL
      for (int m = 0; m < M; ++m) {
        FSDP_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* const two = weights.at[m][2 * k + i / 2] + i % 2 * 2;
          a[m][i] = pack<T>(two[0], two[1]);
        }
      }
      FSDP_UNROLL
      for (int j = 0; j < N / 8; j += 2) {
        unsigned b[4];
        const SharedAddress of_pair = (right ^ static_cast<SharedAddress>(j << 4)) + Behind;
        ldmatrix_x4_trans(b, of_pair + k * 16 * kRowNbytes<N>);
        add_pair(j, a, b);
      }
    }
  }
  /// Row r, times factors[m][h] (r = 16 m + 8 h + lane.row()), to `to` + r · stride, for r in
  /// [begin, end). Goes through `rows`, which is this warp's own, so that 16 bytes lie together.
  template <bool kIsWhole>
  __device__ __forceinline__ void store(T* to, std::int64_t stride, int end, std::int64_t width,
                                        const float (&factors)[M][2], unsigned char* rows,
                                        const Lane& lane, int begin = 0) const {
    const int row = lane.row(), column = lane.column(), index = lane.index();
    __syncwarp();
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      FSDP_UNROLL
      for (int h = 0; h < 2; ++h) {
        FSDP_UNROLL
        for (int j = 0; j < N / 8; ++j) {
          const float* const two = at[m][j] + 2 * h;
          const unsigned pair = pack<T>(two[0] * factors[m][h], two[1] * factors[m][h]);
          *reinterpret_cast<unsigned*>(rows + place<N>(16 * m + 8 * h + row, j) + 2 * column) =
              pair;
        }
      }
    }
    __syncwarp();
    constexpr int kLanes = kLanesOfRow<N>;
    const int unit = index % kLanes;
    if (8 * unit >= width) return;
    FSDP_UNROLL
    for (int i = 0; i < 16 * M; i += 32 / kLanes) {
      const int stored = i + index / kLanes;
      if (stored < begin || stored >= end) continue;
      const auto eight = *reinterpret_cast<const Unit<T>*>(rows + place<N>(stored, unit));
      T* const there = to + stored * stride + 8 * unit;
      if constexpr (kIsWhole) {
        *reinterpret_cast<Unit<T>*>(there) = eight;
      } else {
        FSDP_UNROLL
        for (int n = 0; n < 8; ++n) {
          if (8 * unit + n < width) there[n] = eight.values[n];
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void add_pair(int j, const unsigned (&a)[M][4],
                                           const unsigned (&b)[4]) {
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      mma_m16n8k16<T>(at[m][j], a[m], b[0], b[1]);
      mma_m16n8k16<T>(at[m][j + 1], a[m], b[2], b[3]);
    }
  }
};

/// A block for each batch (x), head (y) and tile (z), so that blocks of one tile are neighbors.
/// Three dimensions, because they cost uniform registers and no divisions.
inline dim3 grid_of(std::int64_t batch, std::int64_t heads, std::int64_t tiles) {
  return {static_cast<unsigned>(batch), static_cast<unsigned>(heads), static_cast<unsigned>(tiles)};
}
inline std::int64_t tiles_of(std::int64_t positions, int rows) {
  return (positions + rows - 1) / rows;
}

/// The query's head that a block works on.
__device__ inline Head head_of_block(const AttentionExtents& e) {
  const unsigned group = static_cast<unsigned>(e.heads) / static_cast<unsigned>(e.kv_heads);
  return {blockIdx.x, blockIdx.y, blockIdx.y / group};
}

/// Calls body(whole, D), both as types: whether rows are loaded 16 bytes at once, and the columns
/// of a product.
template <class Body>
void with_way(const AttentionExtents& e, std::initializer_list<const void*> arrays, Body body) {
  bool is_whole = e.width % 8 == 0 && e.heads * e.width < (1 << 24);  // 128 rows by an int
  for (const void* array : arrays) {
    is_whole = is_whole && reinterpret_cast<std::uintptr_t>(array) % 16 == 0;
  }
  const auto with_columns = [&]<int D>(std::integral_constant<int, D> columns) {
    if (is_whole) {
      body(std::true_type{}, columns);
    } else {  // rare, so there are kernels for fewer widths
      body(std::false_type{}, std::integral_constant < int, D <= 64 ? 64 : 128 > {});
    }
  };
  if (e.width <= 32) {
    with_columns(std::integral_constant<int, 32>{});
  } else if (e.width <= 64) {
    with_columns(std::integral_constant<int, 64>{});
  } else if (e.width <= 96) {
    with_columns(std::integral_constant<int, 96>{});
  } else {
    with_columns(std::integral_constant<int, 128>{});
  }
}

}  // namespace fsdp::cuda::tensor_cores
