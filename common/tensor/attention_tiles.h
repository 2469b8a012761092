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

/// Extents, letters as in ops.h. Row (b, t, h) of q begins at ((b*T' + t)*H + h)*D.
struct Extents {
  std::int64_t batch, length, heads, kv_heads, width;
  std::int64_t queries;   ///< T' <= length: those of the last positions
  std::int64_t tile = 0;  ///< queries, and keys, of a tile

  std::int64_t first_query() const { return length - queries; }  ///< its position
};

/// Largest tile whose working set fits a worker's scratch. @throws Error if none does.
std::int64_t tile_for(std::int64_t width, std::size_t element_size);

template <class T>
struct ForwardArrays {
  T* out;
  Wide<T>* lse;
  const T *q, *k, *v;
};
/// The queries at the positions [first, first + tile) of head (b, h), without those before
/// first_query().
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
/// All queries of all heads that share the key/value head (b, g), in one fixed order. There are as
/// many queries as keys.
template <class T>
void backward(const Extents& extents, const BackwardArrays<T>& arrays, std::int64_t b,
              std::int64_t g, std::byte* scratch);

}  // namespace fsdp::ops::attention_tiles
