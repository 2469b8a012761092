// Causal attention in float32 arithmetic, after "FlashAttention" (Dao et al., 2022): tiles of 32
// queries meet tiles of 32 keys in shared memory, and no matrix of scores exists. Flops: 2 products
// of 2·32·32·D per pair of tiles forward; bytes: K and V once per tile of queries, out of the L2
// cache. A thread loads 6 times 16 bytes for 32 fused multiply-adds, so shared memory limits it, at
// about a third of what the arithmetic units could do.
#include "tensor/cuda/attention_plain.h"

namespace fsdp::cuda {
namespace {

using namespace plain;

template <int Groups, class T>
__global__ void __launch_bounds__(kPlainThreads)
    forward_kernel(T* out, float* lse, const T* q, const T* k, const T* v, AttentionExtents e,
                   float scale) {
  const HeadRows rows(e);
  const int stride = stride_of(e.width);
  auto* const query_tile = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const key_tile = query_tile + kTile * stride;
  float* const value_tile = key_tile + kTile * stride;
  float* const weights = value_tile + kTile * stride;

  // The longest tiles first. Row r of a tile is position first + r, so a query has the same row,
  // and the same bits, whichever other queries are there.
  const std::int64_t heads = e.batch * e.heads, first_query = e.length - e.queries;
  const std::int64_t first = ((e.length - 1) / kTile - blockIdx.x / heads) * kTile;
  const Head head = head_of(e, blockIdx.x % heads);
  const std::int64_t begin = first_query > first ? first_query - first : 0;
  const std::int64_t end = e.length - first < kTile ? e.length - first : kTile;
  const std::int64_t at = query_begin(e, head) + (first - first_query) * rows.q_stride;
  load_tile(query_tile, q + at, rows.q_stride, begin, end, e.width);

  const Lanes lanes;
  float highest[kRows] = {-FLT_MAX, -FLT_MAX}, total[kRows] = {};
  Sums<Groups> sums;
  for (std::int64_t k0 = 0; k0 <= first; k0 += kTile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride, left = e.length - k0;
    __syncthreads();  // all have finished with the last tile
    load_tile(key_tile, k + from, rows.kv_stride, 0, left, e.width);
    load_tile(value_tile, v + from, rows.kv_stride, 0, left, e.width);
    __syncthreads();
    float scores[kRows][kColumns];
    multiply_rows(scores, query_tile, key_tile, stride);
    FSDP_UNROLL
    for (int i = 0; i < kRows; ++i) {
      float top = highest[i], sum = 0;
      for (int j = 0; j < kColumns; ++j) {
        const bool is_seen = k0 + lanes.column(j) <= first + lanes.row(i);
        scores[i][j] = is_seen ? scores[i][j] * scale : -INFINITY;
        top = fmaxf(top, scores[i][j]);
      }
      top = largest_of_lanes<8>(top);
      for (int j = 0; j < kColumns; ++j) {
        const float weight = expf(scores[i][j] - top);
        sum += weight;
        weights[lanes.row(i) * kScoreStride + lanes.column(j)] = weight;
      }
      const float correction = expf(highest[i] - top);
      total[i] = total[i] * correction + sum_of_lanes<8>(sum);
      highest[i] = top;
      sums.scale(i, correction);
    }
    __syncwarp();
    sums.add_product(weights, value_tile, stride);
  }
  FSDP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = lanes.row(i);
    if (row < begin || row >= end) continue;
    sums.store(out + at + row * rows.q_stride, i, 1.0F / total[i], e.width);
    if (lanes.x == 0) {
      lse[lse_begin(e, head) + first - first_query + row] = highest[i] + logf(total[i]);
    }
  }
}

// A block has a tile of queries. With weights p = e^(s - lse): ds = p (dout · v - delta), and
// dq = Σ scale · ds · k.
template <int Groups, class T>
__global__ void __launch_bounds__(kPlainThreads)
    query_kernel(T* dq, const T* dout, const T* out, const float* lse, const T* q, const T* k,
                 const T* v, AttentionExtents e, float scale) {
  const HeadRows rows(e);
  const int stride = stride_of(e.width);
  auto* const query_tile = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const dout_tile = query_tile + kTile * stride;
  float* const key_tile = dout_tile + kTile * stride;
  float* const value_tile = key_tile + kTile * stride;
  float* const dscores = value_tile + kTile * stride;

  const std::int64_t heads = e.batch * e.heads;
  const std::int64_t first = ((e.length - 1) / kTile - blockIdx.x / heads) * kTile;
  const Head head = head_of(e, blockIdx.x % heads);
  const std::int64_t at = query_begin(e, head) + first * rows.q_stride;
  load_tile(query_tile, q + at, rows.q_stride, 0, e.length - first, e.width);
  load_tile(dout_tile, dout + at, rows.q_stride, 0, e.length - first, e.width);

  const Lanes lanes;
  float log_sum[kRows] = {}, delta[kRows] = {};
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = lanes.row(i), here = at + row * rows.q_stride;
    const bool is_there = first + row < e.length;  // all lanes take part in the sum
    delta[i] = delta_of_row(dout + here, out + here, is_there ? e.width : 0);
    if (is_there) log_sum[i] = lse[lse_begin(e, head) + first + row];
  }
  Sums<Groups> sums;
  for (std::int64_t k0 = 0; k0 <= first; k0 += kTile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride, left = e.length - k0;
    __syncthreads();  // all have finished with the last tile
    load_tile(key_tile, k + from, rows.kv_stride, 0, left, e.width);
    load_tile(value_tile, v + from, rows.kv_stride, 0, left, e.width);
    __syncthreads();
    float scores[kRows][kColumns], dweights[kRows][kColumns];
    multiply_rows(scores, query_tile, key_tile, stride);
    multiply_rows(dweights, dout_tile, value_tile, stride);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        const bool is_seen = k0 + lanes.column(j) <= first + lanes.row(i);
        const float weight = is_seen ? expf(scores[i][j] * scale - log_sum[i]) : 0;
        dscores[lanes.row(i) * kScoreStride + lanes.column(j)] =
            weight * (dweights[i][j] - delta[i]);
      }
    }
    __syncwarp();
    sums.add_product(dscores, key_tile, stride);
  }
  FSDP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = lanes.row(i);
    if (first + row < e.length) sums.store(dq + at + row * rows.q_stride, i, scale, e.width);
  }
}

// A block has a tile of keys and values, and meets the queries of all heads that share them, head
// after head: dv = Σ p · dout, dk = Σ scale · ds · q.
template <int Groups, class T>
__global__ void __launch_bounds__(kPlainThreads)
    key_kernel(T* dk, T* dv, const T* dout, const T* out, const float* lse, const T* q, const T* k,
               const T* v, AttentionExtents e, float scale) {
  const HeadRows rows(e);
  const int stride = stride_of(e.width);
  auto* const key_tile = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const value_tile = key_tile + kTile * stride;
  float* const query_tile = value_tile + kTile * stride;
  float* const dout_tile = query_tile + kTile * stride;
  float* const weights = dout_tile + kTile * stride;  // (keys, queries)
  float* const dscores = weights + kTile * kScoreStride;
  float* const log_sum = dscores + kTile * kScoreStride;
  float* const delta = log_sum + kTile;

  const std::int64_t kv_heads = e.batch * e.kv_heads, group = e.heads / e.kv_heads;
  const std::int64_t k0 = blockIdx.x / kv_heads * kTile;
  const std::int64_t batch = blockIdx.x % kv_heads / e.kv_heads, kv_head = blockIdx.x % e.kv_heads;
  const std::int64_t from = key_begin(e, {batch, 0, kv_head}) + k0 * rows.kv_stride;
  load_tile(key_tile, k + from, rows.kv_stride, 0, e.length - k0, e.width);
  load_tile(value_tile, v + from, rows.kv_stride, 0, e.length - k0, e.width);

  const Lanes lanes;
  Sums<Groups> dk_sums, dv_sums;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const Head head{batch, h, kv_head};
    for (std::int64_t first = k0; first < e.length; first += kTile) {
      const std::int64_t at = query_begin(e, head) + first * rows.q_stride, left = e.length - first;
      __syncthreads();  // all have finished with the last tile
      load_tile(query_tile, q + at, rows.q_stride, 0, left, e.width);
      load_tile(dout_tile, dout + at, rows.q_stride, 0, left, e.width);
      for (int i = 0; i < kRows; ++i) {
        const std::int64_t row = lanes.row(i), here = at + row * rows.q_stride;
        const float sum = delta_of_row(dout + here, out + here, row < left ? e.width : 0);
        if (lanes.x != 0) continue;
        delta[row] = sum;
        log_sum[row] = row < left ? lse[lse_begin(e, head) + first + row] : 0;
      }
      __syncthreads();
      float scores[kRows][kColumns], dweights[kRows][kColumns];
      multiply_rows(scores, key_tile, query_tile, stride);
      multiply_rows(dweights, value_tile, dout_tile, stride);
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kColumns; ++j) {
          const int column = lanes.column(j), place = lanes.row(i) * kScoreStride + column;
          const bool is_seen = k0 + lanes.row(i) <= first + column;
          weights[place] = is_seen ? expf(scores[i][j] * scale - log_sum[column]) : 0;
          dscores[place] = weights[place] * (dweights[i][j] - delta[column]);
        }
      }
      __syncwarp();
      dv_sums.add_product(weights, dout_tile, stride);
      dk_sums.add_product(dscores, query_tile, stride);
    }
  }
  FSDP_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = lanes.row(i);
    if (k0 + row >= e.length) continue;
    dk_sums.store(dk + from + row * rows.kv_stride, i, scale, e.width);
    dv_sums.store(dv + from + row * rows.kv_stride, i, 1.0F, e.width);
  }
}

std::int64_t tiles_of(std::int64_t positions) { return (positions + kTile - 1) / kTile; }

}  // namespace

template <class T>
void attention_plain(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
                     const AttentionExtents& e) {
  const std::int64_t tiles = tiles_of(e.length) - (e.length - e.queries) / kTile;
  with_groups<T>(e.width, [&](auto groups) {
    launch_with_shared_memory("attention", static_cast<unsigned>(tiles * e.batch * e.heads),
                              kPlainThreads, shared_nbytes(e.width, 3, 1), stream,
                              forward_kernel<groups.value, Element<T>>, on_device(out), lse,
                              on_device(q), on_device(k), on_device(v), e, scale_of(e));
  });
}

template <class T>
void attention_backward_plain(Stream stream, T* dq, T* dk, T* dv, const T* dout, const T* out,
                              const float* lse, const T* q, const T* k, const T* v,
                              const AttentionExtents& e) {
  const std::int64_t tiles = tiles_of(e.length);
  with_groups<T>(e.width, [&](auto groups) {
    launch_with_shared_memory(
        "attention_backward", static_cast<unsigned>(tiles * e.batch * e.heads), kPlainThreads,
        shared_nbytes(e.width, 4, 1), stream, query_kernel<groups.value, Element<T>>, on_device(dq),
        on_device(dout), on_device(out), lse, on_device(q), on_device(k), on_device(v), e,
        scale_of(e));
    launch_with_shared_memory(
        "attention_backward", static_cast<unsigned>(tiles * e.batch * e.kv_heads), kPlainThreads,
        shared_nbytes(e.width, 4, 2), stream, key_kernel<groups.value, Element<T>>, on_device(dk),
        on_device(dv), on_device(dout), on_device(out), lse, on_device(q), on_device(k),
        on_device(v), e, scale_of(e));
  });
}

#define FSDP_FOR(T)                                                                            \
  template void attention_plain(Stream, T*, float*, const T*, const T*, const T*,              \
                                const AttentionExtents&);                                      \
  template void attention_backward_plain(Stream, T*, T*, T*, const T*, const T*, const float*, \
                                         const T*, const T*, const T*, const AttentionExtents&);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
