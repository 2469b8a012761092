/// @file
/// WMMA: products of 16x16x16 tiles by a warp. An element of the result is
/// `fma(a[i,15], b[15,j], … fma(a[i,0], b[0,j], c[i,j]))`: k ascending, one rounding in float per
/// term. A tensor core adds in an order of its own, so its last bits may differ.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#include <cstddef>
#include <type_traits>

namespace cuda_on_host {

/// The part of a tile that a lane holds: elements 8·lane to 8·lane + 7 in rows of 16.
inline constexpr int kTileElements = 8;
/// d = a·b + c, each the calling lane's part. All 32 lanes must call it.
void multiply_tiles(const float* a, const float* b, const float* c, float* d, Site site);
/// Fails if lanes of the warp are missing, or `address` or `stride` do not suit a tile.
void check_tile(const void* address, std::size_t element_nbytes, unsigned stride, Site site);

}  // namespace cuda_on_host

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

/// Use x[0 … num_elements - 1] as a whole only (to scale, to clear): which elements they are is not
/// specified. A card holds more of them per lane.
template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16 && k == 16, "the stand-in has tiles of 16x16x16");
  static_assert(std::is_same_v<Use, accumulator>
                    ? std::is_same_v<T, float>
                    : std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                "16-bit operands, and a float accumulator");
  static constexpr int num_elements = cuda_on_host::kTileElements;
  T x[num_elements];
};

template <class Use, class T, class Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& tile, std::type_identity_t<T> value) {
  for (T& x : tile.x) x = value;
}

/// Where element i of the calling lane's part is.
inline std::size_t place_in_tile(int i, unsigned stride, bool by_rows) {
  const auto linear = static_cast<unsigned>(cuda_on_host::lane() * 8 + i);
  const unsigned row = linear / 16, column = linear % 16;
  return by_rows ? std::size_t{row} * stride + column : std::size_t{column} * stride + row;
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& tile, const T* from, unsigned stride,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  cuda_on_host::check_tile(from, sizeof(T), stride, {file, line, "load_matrix_sync"});
  constexpr bool kByRows = std::is_same_v<Layout, row_major>;
  for (int i = 0; i < 8; ++i) tile.x[i] = from[place_in_tile(i, stride, kByRows)];
}

inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, float>& tile, const float* from,
                             unsigned stride, layout_t layout, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  cuda_on_host::check_tile(from, sizeof(float), stride, {file, line, "load_matrix_sync"});
  for (int i = 0; i < 8; ++i) {
    tile.x[i] = from[place_in_tile(i, stride, layout == mem_row_major)];
  }
}

inline void store_matrix_sync(float* to, const fragment<accumulator, 16, 16, 16, float>& tile,
                              unsigned stride, layout_t layout, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  cuda_on_host::check_tile(to, sizeof(float), stride, {file, line, "store_matrix_sync"});
  for (int i = 0; i < 8; ++i) {
    to[place_in_tile(i, stride, layout == mem_row_major)] = tile.x[i];
  }
}

template <class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d,
              const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
              const fragment<accumulator, 16, 16, 16, float>& c,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  float wide_a[8], wide_b[8];
  for (int i = 0; i < 8; ++i) {
    wide_a[i] = a.x[i];
    wide_b[i] = b.x[i];
  }
  cuda_on_host::multiply_tiles(wide_a, wide_b, c.x, d.x, {file, line, "mma_sync"});
}

}  // namespace nvcuda::wmma
