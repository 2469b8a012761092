/// @file
/// @ingroup tensor
/// ops::attention and its backward on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// Letters as in tensor/ops.h: q, out (batch, queries, heads, width); k, v (batch, length,
/// kv_heads, width); lse (batch, heads, queries). The queries are those of the last positions.
struct AttentionExtents {
  std::int64_t batch, length, heads, kv_heads, width;
  std::int64_t queries;  ///< T' <= length
};

inline constexpr std::int64_t kWidestHead = 256;  ///< of attention, on CUDA

/// @throws Error if the heads are wider than kWidestHead.
template <class T>
void attention(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
               const AttentionExtents& extents);

/// dq, dk, dv are overwritten; there are as many queries as keys. One kernel sums dq, another dk
/// and dv, each in one fixed order. @throws Error as above.
template <class T>
void attention_backward(Stream stream, T* dq, T* dk, T* dv, const T* dout, const T* out,
                        const float* lse, const T* q, const T* k, const T* v,
                        const AttentionExtents& extents);

}  // namespace fsdp::cuda
