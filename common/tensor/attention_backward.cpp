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
Wide<T> dot(const T* a, const T* b, std::int64_t width) {
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

/// Works on arrays of T, and holds a tile at a time.
template <class T>
void direct_backward(const Extents& e, const BackwardArrays<T>& arrays, std::int64_t b,
                     std::int64_t g, std::byte* scratch) {
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

/// Works on 16-bit arrays. A gradient must stay float32 until its last term, and the scratch cannot
/// hold those of all queries, or of all keys. So there are two passes, and each computes the
/// weights: one holds the gradient of a tile of queries, the other those of a tile of keys and
/// values. The terms of every sum are those of direct_backward(), in the same order.
template <class H>
class WidenedBackward {
 public:
  WidenedBackward(const Extents& extents, const BackwardArrays<H>& arrays, std::int64_t b,
                  std::int64_t g, std::byte* scratch)
      : e_(extents),
        arrays_(arrays),
        b_(b),
        g_(g),
        ld_(tile::padded<float>(e_.width)),
        row_(e_.heads * e_.width),
        kv_row_(e_.kv_heads * e_.width),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(e_.width)))),
        scores_(reinterpret_cast<float*>(scratch) + 6 * e_.tile * ld_),
        dscores_(scores_ + e_.tile * e_.tile),
        lse_(dscores_ + e_.tile * e_.tile),
        delta_(lse_ + e_.tile) {
    for (std::int64_t i = 0; i < 6; ++i) {
      tiles_[i] = reinterpret_cast<float*>(scratch) + i * e_.tile * ld_;
    }
  }

  void run() {
    const std::int64_t group = e_.heads / e_.kv_heads;
    for (std::int64_t h = g_ * group; h < (g_ + 1) * group; ++h) {
      for (std::int64_t first = 0; first < e_.length; first += e_.tile) to_queries(h, first);
    }
    for (std::int64_t k0 = 0; k0 < e_.length; k0 += e_.tile) to_keys(k0, group);
  }

 private:
  std::int64_t rows_from(std::int64_t first) const { return std::min(e_.tile, e_.length - first); }
  std::int64_t query_at(std::int64_t h, std::int64_t first) const {
    return (b_ * e_.length + first) * row_ + h * e_.width;
  }
  std::int64_t key_at(std::int64_t k0) const {
    return (b_ * e_.length + k0) * kv_row_ + g_ * e_.width;
  }

  /// A tile of queries (scaled) and one of output gradients, both transposed; lse_ and delta_.
  void load_queries(float* q_t, float* dout_t, std::int64_t h, std::int64_t first) {
    const std::int64_t queries = rows_from(first), at = query_at(h, first);
    tile::pack_transposed(q_t, e_.tile, arrays_.q + at, row_, queries, e_.width, scale_);
    tile::pack_transposed(dout_t, e_.tile, arrays_.dout + at, row_, queries, e_.width, 1);
    std::fill_n(lse_, e_.tile, 0.0F);
    std::fill_n(delta_, e_.tile, 0.0F);
    for (std::int64_t i = 0; i < queries; ++i) {
      lse_[i] = arrays_.lse[(b_ * e_.heads + h) * e_.length + first + i];
      delta_[i] = dot(arrays_.dout + at + i * row_, arrays_.out + at + i * row_, e_.width);
    }
  }
  void load_keys(float* key, float* value, std::int64_t k0) {
    const std::int64_t keys = rows_from(k0);
    tile::pack(key, ld_, arrays_.k + key_at(k0), kv_row_, keys, e_.width, 1);
    tile::pack(value, ld_, arrays_.v + key_at(k0), kv_row_, keys, e_.width, 1);
  }

  /// scores_ = the weights, dscores_ = their gradients, of queries from `first` on keys from k0.
  void weigh(const float* key, const float* value, const float* q_t, const float* dout_t,
             std::int64_t first, std::int64_t k0) {
    const std::int64_t keys = rows_from(k0), columns = tile::padded<float>(rows_from(first));
    const bool diagonal = k0 == first;
    const auto from_key = [&](std::int64_t begin, std::int64_t) {
      const std::int64_t skip = begin / tile::kColumns<float> * tile::kColumns<float>;
      return tile::Range{diagonal ? skip : 0, 0, e_.width};
    };
    tile::product<float>(keys, columns, {key, ld_, 1}, q_t, e_.tile, scores_, e_.tile, Write::set,
                         from_key);
    tile::product<float>(keys, columns, {value, ld_, 1}, dout_t, e_.tile, dscores_, e_.tile,
                         Write::set, from_key);
    weights_and_gradients(scores_, dscores_, e_.tile, keys, columns, diagonal, lse_, delta_);
  }

  void store(H* to, std::int64_t stride, const float* from, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows; ++i) {
      simd::for_lanes<H>(e_.width, [&](std::int64_t j, auto count) {
        simd::store_n<H>(to + i * stride + j, simd::load<float>(from + i * ld_ + j), count);
      });
    }
  }

  void to_queries(std::int64_t h, std::int64_t first) {
    const auto [q_t, dout_t, dq, key, value, unused] = tiles_;
    const std::int64_t queries = rows_from(first);
    load_queries(q_t, dout_t, h, first);
    for (std::int64_t k0 = 0; k0 <= first; k0 += e_.tile) {
      load_keys(key, value, k0);
      weigh(key, value, q_t, dout_t, first, k0);
      const std::int64_t keys = rows_from(k0);
      tile::pack(key, ld_, arrays_.k + key_at(k0), kv_row_, keys, e_.width, scale_);
      tile::product<float>(queries, ld_, {dscores_, 1, e_.tile}, key, ld_, dq, ld_,
                           k0 > 0 ? Write::add : Write::set, [&](std::int64_t, std::int64_t end) {
                             return tile::Range{0, 0, k0 == first ? std::min(keys, end) : keys};
                           });
    }
    store(arrays_.dq + query_at(h, first), row_, dq, queries);
  }

  void to_keys(std::int64_t k0, std::int64_t group) {
    const auto [key, value, dk, dv, q, dout] = tiles_;
    const std::int64_t keys = rows_from(k0);
    load_keys(key, value, k0);
    for (std::int64_t h = g_ * group; h < (g_ + 1) * group; ++h) {
      for (std::int64_t first = k0; first < e_.length; first += e_.tile) {
        load_queries(q, dout, h, first);
        weigh(key, value, q, dout, first, k0);
        const std::int64_t queries = rows_from(first), at = query_at(h, first);
        tile::pack(q, ld_, arrays_.q + at, row_, queries, e_.width, scale_);
        tile::pack(dout, ld_, arrays_.dout + at, row_, queries, e_.width, 1);
        const Write write = first == k0 && h == g_ * group ? Write::set : Write::add;
        const auto later_queries = [&](std::int64_t begin, std::int64_t) {
          return tile::Range{0, first == k0 ? std::min(begin, queries) : 0, queries};
        };
        tile::product<float>(keys, e_.width, {scores_, e_.tile, 1}, dout, ld_, dv, ld_, write,
                             later_queries);
        tile::product<float>(keys, e_.width, {dscores_, e_.tile, 1}, q, ld_, dk, ld_, write,
                             later_queries);
      }
    }
    store(arrays_.dk + key_at(k0), kv_row_, dk, keys);
    store(arrays_.dv + key_at(k0), kv_row_, dv, keys);
  }

  const Extents& e_;
  const BackwardArrays<H>& arrays_;
  const std::int64_t b_, g_, ld_, row_, kv_row_;
  const float scale_;
  float* tiles_[6];  // (tile, ld) each, or transposed
  float *scores_, *dscores_, *lse_, *delta_;
};

}  // namespace

template <class T>
void backward(const Extents& e, const BackwardArrays<T>& arrays, std::int64_t b, std::int64_t g,
              std::byte* scratch) {
  if constexpr (kIsHalf<T>) {
    WidenedBackward<T>(e, arrays, b, g, scratch).run();
  } else {
    direct_backward(e, arrays, b, g, scratch);
  }
}

template void backward(const Extents&, const BackwardArrays<float>&, std::int64_t, std::int64_t,
                       std::byte*);
template void backward(const Extents&, const BackwardArrays<double>&, std::int64_t, std::int64_t,
                       std::byte*);
template void backward(const Extents&, const BackwardArrays<BFloat16>&, std::int64_t, std::int64_t,
                       std::byte*);
template void backward(const Extents&, const BackwardArrays<Float16>&, std::int64_t, std::int64_t,
                       std::byte*);

}  // namespace fsdp::ops::attention_tiles
