// Causal attention in float32 arithmetic, after "FlashAttention" (Dao et al., 2022): tiles of 32
// queries (16 of wide heads) meet tiles of as many keys in shared memory, and no matrix of scores
// exists. Flops: 2 products of 2·32·32·D per pair of tiles forward; bytes: K and V once per tile of
// queries, out of the L2 cache. A thread loads 6 times 16 bytes for 32 fused multiply-adds, so
// shared memory limits it, at about a third of what the arithmetic units could do.
#include "tensor/cuda/attention_plain.h"

namespace fsdp::cuda {
namespace {

using namespace plain;

template <int Groups, class T>
__global__ void __launch_bounds__(kPlainThreads)
    forward_kernel(T* out, float* lse, const T* q, const T* k, const T* v, AttentionExtents e,
                   float scale) {
  note_shared_memory<shared_nbytes<Groups>(kWidest<Groups>, 3, 1)>();
  constexpr int Tile = kTile<Groups>, Rows = kRows<Groups>, Columns = kColumns<Groups>;
  constexpr int ScoreStride = kScoreStride<Groups>;
  const HeadRows rows(e);
  const int stride = stride_of(e.width);
  auto* const query_tile = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const key_tile = query_tile + Tile * stride;
  float* const value_tile = key_tile + Tile * stride;
  float* const weights = value_tile + Tile * stride;

  // The longest tiles first. Row r of a tile is position first + r, so a query has the same row,
  // and the same bits, whichever other queries are there.
  const std::int64_t heads = e.batch * e.heads, first_query = e.length - e.queries;
  const std::int64_t first = ((e.length - 1) / Tile - blockIdx.x / heads) * Tile;
  const Head head = head_of(e, blockIdx.x % heads);
  const std::int64_t begin = first_query > first ? first_query - first : 0;
  const std::int64_t end = e.length - first < Tile ? e.length - first : Tile;
  const std::int64_t at = query_begin(e, head) + (first - first_query) * rows.q_stride;
  load_tile<Groups>(query_tile, q + at, rows.q_stride, begin, end, e.width);

  const Lanes lanes;
  float highest[Rows], total[Rows] = {};
  for (float& each : highest) each = -FLT_MAX;
  Sums<Groups> sums;
  for (std::int64_t k0 = 0; k0 <= first; k0 += Tile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride, left = e.length - k0;
    __syncthreads();  // all have finished with the last tile
    load_tile<Groups>(key_tile, k + from, rows.kv_stride, 0, left, e.width);
    load_tile<Groups>(value_tile, v + from, rows.kv_stride, 0, left, e.width);
    __syncthreads();
    float scores[Rows][Columns];
    multiply_rows(scores, query_tile, key_tile, stride);
    FSDP_UNROLL
    for (int i = 0; i < Rows; ++i) {
      float top = highest[i], sum = 0;
      for (int j = 0; j < Columns; ++j) {
        const bool is_seen = k0 + lanes.column(j) <= first + lanes.row(i);
        scores[i][j] = is_seen ? scores[i][j] * scale : -INFINITY;
        top = fmaxf(top, scores[i][j]);
      }
      top = largest_of_lanes<8>(top);
      for (int j = 0; j < Columns; ++j) {
        const float weight = expf(scores[i][j] - top);
        sum += weight;
        weights[lanes.row(i) * ScoreStride + lanes.column(j)] = weight;
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
  for (int i = 0; i < Rows; ++i) {
    const int row = lanes.row(i);
    if (row < begin || row >= end) continue;
    sums.store(out + at + row * rows.q_stride, i, 1.0F / total[i], e.width);
    if (lanes.x == 0) {
      lse[lse_begin(e, head) + first - first_query + row] = highest[i] + logf(total[i]);
    }
  }
}

// A block has a tile of queries. With weights p = e^(s - lse): ds = p (dout · v - delta), and
// dq = Σ scale · ds · k. Left alone, ptxas would aim at five blocks at once for sm_120, and spill.
template <int Groups, class T>
__global__ void __launch_bounds__(kPlainThreads, Groups == 4 ? 4 : 0)
    query_kernel(T* dq, const T* dout, const T* out, const float* lse, const T* q, const T* k,
                 const T* v, AttentionExtents e, float scale) {
  note_shared_memory<shared_nbytes<Groups>(kWidest<Groups>, 4, 1)>();
  constexpr int Tile = kTile<Groups>, Rows = kRows<Groups>, Columns = kColumns<Groups>;
  constexpr int ScoreStride = kScoreStride<Groups>;
  const HeadRows rows(e);
  const int stride = stride_of(e.width);
  auto* const query_tile = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const dout_tile = query_tile + Tile * stride;
  float* const key_tile = dout_tile + Tile * stride;
  float* const value_tile = key_tile + Tile * stride;
  float* const dscores = value_tile + Tile * stride;

  const std::int64_t heads = e.batch * e.heads;
  const std::int64_t first = ((e.length - 1) / Tile - blockIdx.x / heads) * Tile;
  const Head head = head_of(e, blockIdx.x % heads);
  const std::int64_t at = query_begin(e, head) + first * rows.q_stride;
  load_tile<Groups>(query_tile, q + at, rows.q_stride, 0, e.length - first, e.width);
  load_tile<Groups>(dout_tile, dout + at, rows.q_stride, 0, e.length - first, e.width);

  const Lanes lanes;
  float log_sum[Rows] = {}, delta[Rows] = {};
  for (int i = 0; i < Rows; ++i) {
    const std::int64_t row = lanes.row(i), here = at + row * rows.q_stride;
    const bool is_there = first + row < e.length;  // all lanes take part in the sum
    delta[i] = delta_of_row(dout + here, out + here, is_there ? e.width : 0);
    if (is_there) log_sum[i] = lse[lse_begin(e, head) + first + row];
  }
  Sums<Groups> sums;
  for (std::int64_t k0 = 0; k0 <= first; k0 += Tile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride, left = e.length - k0;
    __syncthreads();  // all have finished with the last tile
    load_tile<Groups>(key_tile, k + from, rows.kv_stride, 0, left, e.width);
    load_tile<Groups>(value_tile, v + from, rows.kv_stride, 0, left, e.width);
    __syncthreads();
    float scores[Rows][Columns], dweights[Rows][Columns];
    multiply_rows(scores, query_tile, key_tile, stride);
    multiply_rows(dweights, dout_tile, value_tile, stride);
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) {
        const bool is_seen = k0 + lanes.column(j) <= first + lanes.row(i);
        const float weight = is_seen ? expf(scores[i][j] * scale - log_sum[i]) : 0;
        dscores[lanes.row(i) * ScoreStride + lanes.column(j)] =
            weight * (dweights[i][j] - delta[i]);
      }
    }
    __syncwarp();
    sums.add_product(dscores, key_tile, stride);
  }
  FSDP_UNROLL
  for (int i = 0; i < Rows; ++i) {
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
  note_shared_memory<shared_nbytes<Groups>(kWidest<Groups>, 4, 2)>();
  constexpr int Tile = kTile<Groups>, Rows = kRows<Groups>, Columns = kColumns<Groups>;
  constexpr int ScoreStride = kScoreStride<Groups>;
  const HeadRows rows(e);
  const int stride = stride_of(e.width);
  auto* const key_tile = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const value_tile = key_tile + Tile * stride;
  float* const query_tile = value_tile + Tile * stride;
  float* const dout_tile = query_tile + Tile * stride;
  float* const weights = dout_tile + Tile * stride;  // (keys, queries)
  float* const dscores = weights + Tile * ScoreStride;
  float* const log_sum = dscores + Tile * ScoreStride;
  float* const delta = log_sum + Tile;

  const std::int64_t kv_heads = e.batch * e.kv_heads, group = e.heads / e.kv_heads;
  const std::int64_t k0 = blockIdx.x / kv_heads * Tile;
  const std::int64_t batch = blockIdx.x % kv_heads / e.kv_heads, kv_head = blockIdx.x % e.kv_heads;
  const std::int64_t from = key_begin(e, {batch, 0, kv_head}) + k0 * rows.kv_stride;
  load_tile<Groups>(key_tile, k + from, rows.kv_stride, 0, e.length - k0, e.width);
  load_tile<Groups>(value_tile, v + from, rows.kv_stride, 0, e.length - k0, e.width);

  const Lanes lanes;
  Sums<Groups> dk_sums, dv_sums;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const Head head{batch, h, kv_head};
    for (std::int64_t first = k0; first < e.length; first += Tile) {
      const std::int64_t at = query_begin(e, head) + first * rows.q_stride, left = e.length - first;
      __syncthreads();  // all have finished with the last tile
      load_tile<Groups>(query_tile, q + at, rows.q_stride, 0, left, e.width);
      load_tile<Groups>(dout_tile, dout + at, rows.q_stride, 0, left, e.width);
      for (int i = 0; i < Rows; ++i) {
        const std::int64_t row = lanes.row(i), here = at + row * rows.q_stride;
        const float sum = delta_of_row(dout + here, out + here, row < left ? e.width : 0);
        if (lanes.x != 0) continue;
        delta[row] = sum;
        log_sum[row] = row < left ? lse[lse_begin(e, head) + first + row] : 0;
      }
      __syncthreads();
      float scores[Rows][Columns], dweights[Rows][Columns];
      multiply_rows(scores, key_tile, query_tile, stride);
      multiply_rows(dweights, value_tile, dout_tile, stride);
      for (int i = 0; i < Rows; ++i) {
        for (int j = 0; j < Columns; ++j) {
          const int column = lanes.column(j), place = lanes.row(i) * ScoreStride + column;
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
  for (int i = 0; i < Rows; ++i) {
    const std::int64_t row = lanes.row(i);
    if (k0 + row >= e.length) continue;
    dk_sums.store(dk + from + row * rows.kv_stride, i, scale, e.width);
    dv_sums.store(dv + from + row * rows.kv_stride, i, 1.0F, e.width);
  }
}

template <int Groups>
std::int64_t tiles_of(std::int64_t positions) {
  return (positions + kTile<Groups> - 1) / kTile<Groups>;
}

}  // namespace

template <class T>
void attention_plain(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
                     const AttentionExtents& e) {
  with_groups<T>(e.width, [&](auto groups) {
    constexpr int Groups = groups.value;
    const std::int64_t tiles = tiles_of<Groups>(e.length) - (e.length - e.queries) / kTile<Groups>;
    launch_with_shared_memory<forward_kernel<Groups, Element<T>>>(
        "attention", static_cast<unsigned>(tiles * e.batch * e.heads), kPlainThreads,
        shared_nbytes<Groups>(e.width, 3, 1), stream, on_device(out), lse, on_device(q),
        on_device(k), on_device(v), e, scale_of(e));
  });
}

template <class T>
void attention_backward_plain(Stream stream, T* dq, T* dk, T* dv, const T* dout, const T* out,
                              const float* lse, const T* q, const T* k, const T* v,
                              const AttentionExtents& e) {
  with_groups<T>(e.width, [&](auto groups) {
    constexpr int Groups = groups.value;
    const std::int64_t tiles = tiles_of<Groups>(e.length);
    launch_with_shared_memory<query_kernel<Groups, Element<T>>>(
        "attention_backward", static_cast<unsigned>(tiles * e.batch * e.heads), kPlainThreads,
        shared_nbytes<Groups>(e.width, 4, 1), stream, on_device(dq), on_device(dout),
        on_device(out), lse, on_device(q), on_device(k), on_device(v), e, scale_of(e));
    launch_with_shared_memory<key_kernel<Groups, Element<T>>>(
        "attention_backward", static_cast<unsigned>(tiles * e.batch * e.kv_heads), kPlainThreads,
        shared_nbytes<Groups>(e.width, 4, 2), stream, on_device(dk), on_device(dv), on_device(dout),
        on_device(out), lse, on_device(q), on_device(k), on_device(v), e, scale_of(e));
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
