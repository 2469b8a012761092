/// @file
/// @ingroup tensor
/// The kernels of causal attention for one tile of queries, or one head.
///
/// Scores are kept transposed, S (keys, queries), in a tile of the worker's scratch. So the softmax
/// runs down columns, eight queries side by side, and no sum crosses lanes.
#pragma once

#include "base/half_floats.h"

#include <cstddef>
#include <cstdint>

namespace fsdp::ops::attention_tiles {

/// Extents, letters as in ops.h. Row (b, t, h) of q begins at ((b*T + t)*H + h)*D.
struct Extents {
  std::int64_t batch, length, heads, kv_heads, width;
  std::int64_t tile;  ///< queries, and keys, of a tile
};

/// Largest tile whose working set fits a worker's scratch. @throws Error if none does.
std::int64_t tile_for(std::int64_t width, std::size_t element_size);

template <class T>
struct ForwardArrays {
  T* out;
  Wide<T>* lse;
  const T *q, *k, *v;
};
/// One tile of queries, [first, first + tile), of head (b, h).
template <class T>
void forward(const Extents& extents, const ForwardArrays<T>& arrays, std::int64_t b, std::int64_t h,
             std::int64_t first, std::byte* scratch);

template <class T>
struct BackwardArrays {
  T *dq, *dk, *dv;
  const T *dout, *out;
  const Wide<T>* lse;
  const T *q, *k, *v;
};
/// All queries of all heads that share the key/value head (b, g), in one fixed order.
template <class T>
void backward(const Extents& extents, const BackwardArrays<T>& arrays, std::int64_t b,
              std::int64_t g, std::byte* scratch);

}  // namespace fsdp::ops::attention_tiles
