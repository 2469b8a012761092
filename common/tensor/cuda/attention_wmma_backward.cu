// The backward of attention_wmma.cu: with weights p = e^(s - lse) and ds = p (dout · v - delta),
// dq = Σ scale · ds · k, dk = Σ scale · ds · q, dv = Σ p · dout. Two kernels, so that each sum has
// one fixed order; p and ds are rounded to 16 bits before they are multiplied. Flops: 3 products of
// 2·64·64·D per pair of tiles for dq, 4 for dk and dv. Shared memory limits both, as forward.
#include "tensor/cuda/attention_wmma.h"

namespace fsdp::cuda {
namespace {

using namespace tensor_cores;

// A block has a tile of queries.
template <int Chunks, class T>
__global__ void __launch_bounds__(kTensorThreads)
    query_kernel(T* dq, const T* dout, const T* out, const float* lse, const T* q, const T* k,
                 const T* v, AttentionExtents e, float scale) {
  const HeadRows rows(e);
  const Lanes lanes;
  const int stride = stride_of(e.width);
  auto* const query_tile = reinterpret_cast<T*>(dynamic_shared_memory);
  T* const dout_tile = query_tile + kTile * stride;
  T* const key_tile = dout_tile + kTile * stride;
  T* const value_tile = key_tile + kTile * stride;
  // Of this warp:
  T* const dscores = value_tile + kTile * stride + kWarpRows * lanes.warp * kWeightStride;
  float* const scores = reinterpret_cast<float*>(value_tile + kTile * (stride + kWeightStride)) +
                        kWarpRows * lanes.warp * kScoreStride;
  const int rows_before = kWarpRows * lanes.warp * stride;

  const std::int64_t heads = e.batch * e.heads;
  const std::int64_t first = ((e.length - 1) / kTile - blockIdx.x / heads) * kTile;
  const Head head = head_of(e, blockIdx.x % heads);
  const std::int64_t at = query_begin(e, head) + first * rows.q_stride;
  load_tile(query_tile, q + at, rows.q_stride, 0, e.length - first, e.width);
  load_tile(dout_tile, dout + at, rows.q_stride, 0, e.length - first, e.width);

  const std::int64_t row = lanes.row_of_tile(), here = at + row * rows.q_stride;
  const bool is_there = first + row < e.length;
  const float delta = delta_of_row(dout + here, out + here, is_there ? e.width : 0);
  const float log_sum = is_there ? lse[lse_begin(e, head) + first + row] : 0;
  float* const score_row = scores + lanes.row * kScoreStride;
  T* const dscore_row = dscores + lanes.row * kWeightStride;
  Sums<Chunks> sums;
  for (std::int64_t k0 = 0; k0 <= first; k0 += kTile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride, left = e.length - k0;
    const int chunks = k0 == first ? lanes.warp + 1 : kAllChunks;
    const auto is_seen = [&](int i) { return k0 + lanes.column(i) <= first + row; };
    __syncthreads();  // all have finished with the last tile
    load_tile(key_tile, k + from, rows.kv_stride, 0, left, e.width);
    load_tile(value_tile, v + from, rows.kv_stride, 0, left, e.width);
    __syncthreads();
    multiply_rows(scores, query_tile + rows_before, key_tile, stride, 0, chunks);
    __syncwarp();
    float weights[kColumnsOfLane];
    FSDP_UNROLL
    for (int i = 0; i < kColumnsOfLane; ++i) {
      weights[i] = is_seen(i) ? expf(score_row[lanes.column(i)] * scale - log_sum) : 0;
    }
    __syncwarp();
    multiply_rows(scores, dout_tile + rows_before, value_tile, stride, 0, chunks);
    __syncwarp();
    FSDP_UNROLL
    for (int i = 0; i < kColumnsOfLane; i += 2) {
      Several<T, 2> pair;
      for (int n = 0; n < 2; ++n) {
        const float* const dweight = score_row + lanes.column(i + n);
        pair.values[n] = narrow<T>(is_seen(i + n) ? weights[i + n] * (*dweight - delta) : 0);
      }
      *reinterpret_cast<Several<T, 2>*>(dscore_row + lanes.column(i)) = pair;
    }
    __syncwarp();
    sums.add_product(dscores, key_tile, stride, 0, chunks);
  }
  sums.store(dq + here, is_there, scale, e.width, scores);
}

// A block has a tile of keys and values, and meets the queries of all heads that share them, head
// after head. Scores are transposed: (keys, queries).
template <int Chunks, class T>
__global__ void __launch_bounds__(kTensorThreads)
    key_kernel(T* dk, T* dv, const T* dout, const T* out, const float* lse, const T* q, const T* k,
               const T* v, AttentionExtents e, float scale) {
  const HeadRows rows(e);
  const Lanes lanes;
  const int stride = stride_of(e.width);
  auto* const key_tile = reinterpret_cast<T*>(dynamic_shared_memory);
  T* const value_tile = key_tile + kTile * stride;
  T* const query_tile = value_tile + kTile * stride;
  T* const dout_tile = query_tile + kTile * stride;
  T* const weight_tile = dout_tile + kTile * stride;
  T* const dscore_tile = weight_tile + kTile * kWeightStride;
  float* const log_sum = reinterpret_cast<float*>(dscore_tile + kTile * kWeightStride);
  float* const delta = log_sum + kTile;
  // Of this warp:
  T* const weights = weight_tile + kWarpRows * lanes.warp * kWeightStride;
  T* const dscores = dscore_tile + kWarpRows * lanes.warp * kWeightStride;
  float* const scores = delta + kTile + kWarpRows * lanes.warp * kScoreStride;
  const int rows_before = kWarpRows * lanes.warp * stride;

  const std::int64_t kv_heads = e.batch * e.kv_heads, group = e.heads / e.kv_heads;
  const std::int64_t k0 = blockIdx.x / kv_heads * kTile;
  const std::int64_t batch = blockIdx.x % kv_heads / e.kv_heads, kv_head = blockIdx.x % e.kv_heads;
  const std::int64_t from = key_begin(e, {batch, 0, kv_head}) + k0 * rows.kv_stride;
  load_tile(key_tile, k + from, rows.kv_stride, 0, e.length - k0, e.width);
  load_tile(value_tile, v + from, rows.kv_stride, 0, e.length - k0, e.width);

  const int row = lanes.row_of_tile();
  float* const score_row = scores + lanes.row * kScoreStride;
  Sums<Chunks> dk_sums, dv_sums;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const Head head{batch, h, kv_head};
    for (std::int64_t first = k0; first < e.length; first += kTile) {
      const std::int64_t at = query_begin(e, head) + first * rows.q_stride, left = e.length - first;
      const std::int64_t here = at + row * rows.q_stride;
      const int chunk = k0 == first ? lanes.warp : 0;
      const auto is_seen = [&](int i) { return k0 + row <= first + lanes.column(i); };
      __syncthreads();  // all have finished with the last tile
      load_tile(query_tile, q + at, rows.q_stride, 0, left, e.width);
      load_tile(dout_tile, dout + at, rows.q_stride, 0, left, e.width);
      const float sum = delta_of_row(dout + here, out + here, row < left ? e.width : 0);
      if (lanes.half == 0) {
        delta[row] = sum;
        log_sum[row] = row < left ? lse[lse_begin(e, head) + first + row] : 0;
      }
      __syncthreads();
      multiply_rows(scores, key_tile + rows_before, query_tile, stride, chunk, kAllChunks);
      __syncwarp();
      float exact[kColumnsOfLane];
      FSDP_UNROLL
      for (int i = 0; i < kColumnsOfLane; ++i) {
        const int column = lanes.column(i);
        exact[i] = is_seen(i) ? expf(score_row[column] * scale - log_sum[column]) : 0;
      }
      __syncwarp();
      multiply_rows(scores, value_tile + rows_before, dout_tile, stride, chunk, kAllChunks);
      __syncwarp();
      FSDP_UNROLL
      for (int i = 0; i < kColumnsOfLane; i += 2) {
        Several<T, 2> weight, dscore;
        for (int n = 0; n < 2; ++n) {
          const int column = lanes.column(i + n);
          const float ds = is_seen(i + n) ? exact[i + n] * (score_row[column] - delta[column]) : 0;
          weight.values[n] = narrow<T>(exact[i + n]);
          dscore.values[n] = narrow<T>(ds);
        }
        const int place = lanes.row * kWeightStride + lanes.column(i);
        *reinterpret_cast<Several<T, 2>*>(weights + place) = weight;
        *reinterpret_cast<Several<T, 2>*>(dscores + place) = dscore;
      }
      __syncwarp();
      dv_sums.add_product(weights, dout_tile, stride, chunk, kAllChunks);
      dk_sums.add_product(dscores, query_tile, stride, chunk, kAllChunks);
    }
  }
  const bool is_there = k0 + row < e.length;
  const std::int64_t to = from + row * rows.kv_stride;
  dk_sums.store(dk + to, is_there, scale, e.width, scores);
  dv_sums.store(dv + to, is_there, 1.0F, e.width, scores);
}

}  // namespace

template <class T>
void attention_backward_wmma(Stream stream, T* dq, T* dk, T* dv, const T* dout, const T* out,
                             const float* lse, const T* q, const T* k, const T* v,
                             const AttentionExtents& e) {
  const std::int64_t tiles = (e.length + kTile - 1) / kTile;
  with_chunks(e.width, [&](auto chunks) {
    launch_with_shared_memory("attention_backward", tiles * e.batch * e.heads, kTensorThreads,
                              shared_nbytes(e.width, 4, 1), stream,
                              query_kernel<chunks.value, Element<T>>, on_device(dq),
                              on_device(dout), on_device(out), lse, on_device(q), on_device(k),
                              on_device(v), e, scale_of(e));
    launch_with_shared_memory("attention_backward", tiles * e.batch * e.kv_heads, kTensorThreads,
                              shared_nbytes(e.width, 4, 2), stream,
                              key_kernel<chunks.value, Element<T>>, on_device(dk), on_device(dv),
                              on_device(dout), on_device(out), lse, on_device(q), on_device(k),
                              on_device(v), e, scale_of(e));
  });
}

#define FSDP_FOR(T)                                                                           \
  template void attention_backward_wmma(Stream, T*, T*, T*, const T*, const T*, const float*, \
                                        const T*, const T*, const T*, const AttentionExtents&);
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
