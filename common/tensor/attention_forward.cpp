#include "base/check.h"
#include "base/fixed_math.h"
#include "base/types.h"
#include "tensor/attention_tiles.h"
#include "tensor/tile_product.h"

#include <cmath>
#include <limits>

namespace fsdp::ops::attention_tiles {
namespace {

using simd::kLanes;
using simd::Vec;

/// Running maximum and sum of each query of the tile, and what earlier results are to be scaled by.
template <class T>
struct Running {
  T *maximum, *sum, *correction;
};

/// Turns scores of `keys` keys into weights e^(s - maximum), column by column, two vectors of
/// queries at a time, beginning at query `first`. On the diagonal key k counts for queries >= k
/// only; the other weights are zero.
template <class T>
void softmax_tile(T* scores, std::int64_t tile, std::int64_t keys, std::int64_t first,
                  std::int64_t queries, bool diagonal, Running<T> running) {
  constexpr std::int64_t kBoth = 2 * kLanes<T>;
  Vec<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = static_cast<T>(i);
  for (std::int64_t q = first; q < queries; q += kBoth) {
    const std::int64_t visible = diagonal ? std::min(keys, q + kBoth) : keys;
    const std::int64_t unmasked = diagonal ? std::min(visible, q + 1) : keys;
    T* column = scores + q;
    Vec<T> before[2], top[2], sum[2] = {}, query[2];
    simd::unroll<2>([&](auto v) {
      query[v] = lane + static_cast<T>(q + v * kLanes<T>);
      top[v] = before[v] = simd::load<T>(running.maximum + q + v * kLanes<T>);
    });
    const auto at = [&](std::int64_t k, auto v) { return column + k * tile + v * kLanes<T>; };
    for (std::int64_t k = 0; k < unmasked; ++k) {
      simd::unroll<2>([&](auto v) { top[v] = simd::max<T>(top[v], simd::load<T>(at(k, v))); });
    }
    for (std::int64_t k = unmasked; k < visible; ++k) {
      simd::unroll<2>([&](auto v) {
        const Vec<T> raised = simd::max<T>(top[v], simd::load<T>(at(k, v)));
        top[v] = query[v] >= static_cast<T>(k) ? raised : top[v];
      });
    }
    for (std::int64_t k = 0; k < unmasked; ++k) {
      simd::unroll<2>([&](auto v) {
        const Vec<T> p = simd::exp_of_negative<T>(simd::load<T>(at(k, v)) - top[v]);
        simd::store<T>(at(k, v), p);
        sum[v] += p;
      });
    }
    for (std::int64_t k = unmasked; k < visible; ++k) {
      simd::unroll<2>([&](auto v) {
        Vec<T> p = simd::exp<T>(simd::load<T>(at(k, v)) - top[v]);
        p = query[v] >= static_cast<T>(k) ? p : Vec<T>{};
        simd::store<T>(at(k, v), p);
        sum[v] += p;
      });
    }
    for (std::int64_t k = visible; k < keys; ++k) {
      simd::unroll<2>([&](auto v) { simd::store<T>(at(k, v), Vec<T>{}); });
    }
    simd::unroll<2>([&](auto v) {
      const std::int64_t to = q + v * kLanes<T>;
      const Vec<T> correction = simd::exp<T>(before[v] - top[v]);
      simd::store<T>(running.maximum + to, top[v]);
      simd::store<T>(running.sum + to, simd::load<T>(running.sum + to) * correction + sum[v]);
      simd::store<T>(running.correction + to, correction);
    });
  }
}

template <class T>
void scale_rows(T* rows, std::int64_t count, std::int64_t width, const T* factor) {
  for (std::int64_t r = 0; r < count; ++r) {
    if (factor[r] == T{1}) continue;
    const Vec<T> by = simd::splat<T>(factor[r]);
    for (std::int64_t j = 0; j < width; j += kLanes<T>) {
      T* at = rows + r * width + j;
      simd::store<T>(at, simd::load<T>(at) * by);
    }
  }
}

}  // namespace

std::int64_t tile_for(std::int64_t width, std::size_t element_size) {
  const auto lanes_of = static_cast<std::int64_t>(32 / element_size);
  const std::int64_t ld = (width + 2 * lanes_of - 1) / (2 * lanes_of) * (2 * lanes_of);
  for (const std::int64_t tile : {64, 32, 16}) {
    // The backward pass needs more: six tiles of rows, two of scores, and some vectors.
    const std::int64_t elements = 6 * tile * ld + 2 * tile * tile + 4 * tile;
    if (static_cast<std::size_t>(elements) * element_size <= kScratchBytes) return tile;
  }
  fail("attention: a head width of {} is too large for the worker's scratch", width);
}

template <class T>
void forward(const Extents& e, const ForwardArrays<T>& arrays, std::int64_t b, std::int64_t h,
             std::int64_t first, std::byte* scratch) {
  using W = Wide<T>;
  const std::int64_t tile = e.tile, width = e.width, ld = tile::padded<W>(width);
  const std::int64_t g = h / (e.heads / e.kv_heads);
  const std::int64_t row = e.heads * width, kv_row = e.kv_heads * width;
  // A query has the column of its position, so its bits do not depend on which others are there.
  const std::int64_t begin = std::max<std::int64_t>(0, e.first_query() - first);
  const std::int64_t end = std::min(tile, e.length - first), queries = end - begin;
  const std::int64_t first_column = begin / tile::kColumns<W> * tile::kColumns<W>;
  const std::int64_t columns = tile::padded<W>(end);
  const std::int64_t query = first + begin - e.first_query();  // among those of q
  const std::int64_t at = (b * e.queries + query) * row + h * width;
  const T* keys = arrays.k + b * e.length * kv_row + g * width;
  const T* values = arrays.v + b * e.length * kv_row + g * width;

  W* queries_t = reinterpret_cast<W*>(scratch);  // (D, tile), scaled
  W* value_tile = queries_t + tile * ld;         // (tile, ld); widened keys before that
  W* sums = value_tile + tile * ld;              // (tile, ld): Σ weight · value
  W* scores = sums + tile * ld;                  // (keys, queries)
  const Running<W> running{scores + tile * tile, scores + tile * tile + tile,
                           scores + tile * tile + 2 * tile};
  std::fill_n(running.maximum, tile, std::numeric_limits<W>::lowest());
  std::fill_n(running.sum, tile, W{0});
  const auto scale = static_cast<W>(1 / std::sqrt(static_cast<double>(width)));
  tile::pack_transposed(queries_t, tile, arrays.q + at, row, queries, width, scale, begin);

  for (std::int64_t k0 = 0; k0 <= first; k0 += tile) {
    const std::int64_t count = std::min(tile, e.length - k0);
    const bool diagonal = k0 == first;
    tile::product<W>(
        count, columns, tile::left_of(keys + k0 * kv_row, kv_row, count, width, value_tile, ld),
        queries_t, tile, scores, tile, Write::set, [&](std::int64_t key, std::int64_t) {
          const std::int64_t skip = key / tile::kColumns<W> * tile::kColumns<W>;
          return tile::Range{diagonal ? std::max(skip, first_column) : first_column, 0, width};
        });
    softmax_tile(scores, tile, count, first_column, columns, diagonal, running);
    if (k0 > 0) scale_rows(sums, queries, ld, running.correction + begin);
    tile::pack(value_tile, ld, values + k0 * kv_row, kv_row, count, width, W{1});
    tile::product<W>(
        queries, ld, {scores + begin, 1, tile}, value_tile, ld, sums, ld,
        k0 > 0 ? Write::add : Write::set, [&](std::int64_t, std::int64_t row_end) {
          return tile::Range{0, 0, diagonal ? std::min(count, begin + row_end) : count};
        });
  }

  for (std::int64_t i = 0; i < queries; ++i) {
    const Vec<T> by = simd::splat<W>(W{1} / running.sum[begin + i]);
    simd::for_lanes<T>(width, [&](std::int64_t j, auto count) {
      simd::store_n<T>(arrays.out + at + i * row + j, simd::load<W>(sums + i * ld + j) * by, count);
    });
    arrays.lse[(b * e.heads + h) * e.queries + query + i] =
        running.maximum[begin + i] +
        static_cast<W>(fixed::log(static_cast<double>(running.sum[begin + i])));
  }
}

template void forward(const Extents&, const ForwardArrays<float>&, std::int64_t, std::int64_t,
                      std::int64_t, std::byte*);
template void forward(const Extents&, const ForwardArrays<double>&, std::int64_t, std::int64_t,
                      std::int64_t, std::byte*);
template void forward(const Extents&, const ForwardArrays<BFloat16>&, std::int64_t, std::int64_t,
                      std::int64_t, std::byte*);
template void forward(const Extents&, const ForwardArrays<Float16>&, std::int64_t, std::int64_t,
                      std::int64_t, std::byte*);

}  // namespace fsdp::ops::attention_tiles
