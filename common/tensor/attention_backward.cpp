#include "tensor/attention_tiles.h"
#include "tensor/tile_product.h"

#include <cmath>

namespace fsdp::ops::attention_tiles {
namespace {

using simd::kLanes;
using simd::Vec;

/// From scores S and dP = dO·Vᵀ (both keys × queries) to weights P = e^(S - lse), written over S,
/// and dS = P (dP - delta), written over dP. On the diagonal, zero where key > query.
template <class T>
void weights_and_gradients(T* scores, T* dweights, std::int64_t tile, std::int64_t keys,
                           std::int64_t queries, bool diagonal, const T* lse, const T* delta) {
  Vec<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = static_cast<T>(i);
  for (std::int64_t k = 0; k < keys; ++k) {
    T* s = scores + k * tile;
    T* d = dweights + k * tile;
    const std::int64_t begin = diagonal ? k / kLanes<T> * kLanes<T> : 0;
    std::fill_n(s, begin, T{0});
    std::fill_n(d, begin, T{0});
    for (std::int64_t q = begin; q < queries; q += kLanes<T>) {
      Vec<T> p = simd::exp_of_negative<T>(simd::load<T>(s + q) - simd::load<T>(lse + q));
      Vec<T> ds = p * (simd::load<T>(d + q) - simd::load<T>(delta + q));
      if (diagonal && q == begin) {
        const simd::Mask<T> seen = lane + static_cast<T>(q) >= static_cast<T>(k);
        p = seen ? p : Vec<T>{};
        ds = seen ? ds : Vec<T>{};
      }
      simd::store<T>(s + q, p);
      simd::store<T>(d + q, ds);
    }
  }
}

template <class T>
T dot(const T* a, const T* b, std::int64_t width) {
  Vec<T> sum = {};
  simd::for_lanes<T>(width, [&](std::int64_t j, auto count) {
    sum = simd::fma<T>(simd::load_n<T>(a + j, count), simd::load_n<T>(b + j, count), sum);
  });
  return simd::sum<T>(sum);
}

/// Scratch of one worker.
template <class T>
struct Tiles {
  Tiles(std::byte* scratch, std::int64_t tile, std::int64_t ld)
      : q(reinterpret_cast<T*>(scratch)),
        q_t(q + tile * ld),
        dout(q_t + tile * ld),
        dout_t(dout + tile * ld),
        key(dout_t + tile * ld),
        dq(key + tile * ld),
        scores(dq + tile * ld),
        dscores(scores + tile * tile),
        lse(dscores + tile * tile),
        delta(lse + tile) {}
  T *q, *q_t, *dout, *dout_t;  // queries (scaled) and output gradients, also transposed
  T *key, *dq;
  T *scores, *dscores;
  T *lse, *delta;
};

}  // namespace

template <class T>
void backward(const Extents& e, const BackwardArrays<T>& arrays, std::int64_t b, std::int64_t g,
              std::byte* scratch) {
  const std::int64_t tile = e.tile, width = e.width, ld = tile::padded<T>(width);
  const std::int64_t group = e.heads / e.kv_heads;
  const std::int64_t row = e.heads * width, kv_row = e.kv_heads * width;
  const std::int64_t kv_at = b * e.length * kv_row + g * width;
  const auto scale = static_cast<T>(1 / std::sqrt(static_cast<double>(width)));
  const Tiles<T> t(scratch, tile, ld);

  for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
    for (std::int64_t first = 0; first < e.length; first += tile) {
      const std::int64_t queries = std::min(tile, e.length - first);
      const std::int64_t columns = tile::padded<T>(queries);
      const std::int64_t at = (b * e.length + first) * row + h * width;
      tile::pack(t.q, ld, arrays.q + at, row, queries, width, scale);
      tile::pack_transposed(t.q_t, tile, arrays.q + at, row, queries, width, scale);
      tile::pack(t.dout, ld, arrays.dout + at, row, queries, width, T{1});
      tile::pack_transposed(t.dout_t, tile, arrays.dout + at, row, queries, width, T{1});
      std::fill_n(t.lse, tile, T{0});
      std::fill_n(t.delta, tile, T{0});
      for (std::int64_t i = 0; i < queries; ++i) {
        t.lse[i] = arrays.lse[(b * e.heads + h) * e.length + first + i];
        t.delta[i] = dot(arrays.dout + at + i * row, arrays.out + at + i * row, width);
      }
      for (std::int64_t k0 = 0; k0 <= first; k0 += tile) {
        const std::int64_t keys = std::min(tile, e.length - k0);
        const std::int64_t key_at = kv_at + k0 * kv_row;
        const bool diagonal = k0 == first;
        const auto from_key = [&](std::int64_t begin, std::int64_t) {
          const std::int64_t skip = begin / tile::kColumns<T> * tile::kColumns<T>;
          return tile::Range{diagonal ? skip : 0, 0, width};
        };
        const auto later_queries = [&](std::int64_t begin, std::int64_t) {
          return tile::Range{0, diagonal ? std::min(begin, queries) : 0, queries};
        };
        const auto earlier_keys = [&](std::int64_t, std::int64_t end) {
          return tile::Range{0, 0, diagonal ? std::min(keys, end) : keys};
        };
        tile::product<T>(keys, columns, {arrays.k + key_at, kv_row, 1}, t.q_t, tile, t.scores, tile,
                         Write::set, from_key);
        tile::product<T>(keys, columns, {arrays.v + key_at, kv_row, 1}, t.dout_t, tile, t.dscores,
                         tile, Write::set, from_key);
        weights_and_gradients(t.scores, t.dscores, tile, keys, columns, diagonal, t.lse, t.delta);
        // The first to reach a tile of keys is the diagonal of the first head.
        const Write write = diagonal && h == g * group ? Write::set : Write::add;
        tile::product<T>(keys, width, {t.scores, tile, 1}, t.dout, ld, arrays.dv + key_at, kv_row,
                         write, later_queries);
        tile::product<T>(keys, width, {t.dscores, tile, 1}, t.q, ld, arrays.dk + key_at, kv_row,
                         write, later_queries);
        tile::pack(t.key, ld, arrays.k + key_at, kv_row, keys, width, scale);
        tile::product<T>(queries, ld, {t.dscores, 1, tile}, t.key, ld, t.dq, ld,
                         k0 > 0 ? Write::add : Write::set, earlier_keys);
      }
      for (std::int64_t i = 0; i < queries; ++i) {
        std::copy_n(t.dq + i * ld, width, arrays.dq + at + i * row);
      }
    }
  }
}

template void backward(const Extents&, const BackwardArrays<float>&, std::int64_t, std::int64_t,
                       std::byte*);
template void backward(const Extents&, const BackwardArrays<double>&, std::int64_t, std::int64_t,
                       std::byte*);

}  // namespace fsdp::ops::attention_tiles
