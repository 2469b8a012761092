// Causal attention of 16-bit floats on tensor cores. A block has 64 queries, and goes over the keys
// twice: first for the maximum and the sum of each row of scores, then for the weights, so that the
// results stay in registers and are never rescaled. Flops: 3 products of 2·64·64·D per pair of
// tiles; bytes: K twice and V once per tile of queries, out of the L2 cache. Every 16·16·16 product
// loads 512 bytes of shared memory and more, four clocks' worth: that limits it, at about half of
// what tensor cores could do.
#include "tensor/cuda/attention_wmma.h"

namespace fsdp::cuda {
namespace {

using namespace tensor_cores;

template <int Chunks, class T>
__global__ void __launch_bounds__(kTensorThreads)
    forward_kernel(T* out, float* lse, const T* q, const T* k, const T* v, AttentionExtents e,
                   float scale) {
  const HeadRows rows(e);
  const Lanes lanes;
  const int stride = stride_of(e.width);
  auto* const query_tile = reinterpret_cast<T*>(dynamic_shared_memory);
  T* const key_tile = query_tile + kTile * stride;
  T* const value_tile = key_tile + kTile * stride;
  // Of this warp:
  T* const weights = value_tile + kTile * stride + kWarpRows * lanes.warp * kWeightStride;
  float* const scores = reinterpret_cast<float*>(value_tile + kTile * (stride + kWeightStride)) +
                        kWarpRows * lanes.warp * kScoreStride;
  const T* const queries = query_tile + kWarpRows * lanes.warp * stride;

  // The longest tiles first. Row r of a tile is position first + r, so a query has the same row,
  // and the same bits, whichever other queries are there.
  const std::int64_t heads = e.batch * e.heads, first_query = e.length - e.queries;
  const std::int64_t first = ((e.length - 1) / kTile - blockIdx.x / heads) * kTile;
  const Head head = head_of(e, blockIdx.x % heads);
  const std::int64_t begin = first_query > first ? first_query - first : 0;
  const std::int64_t end = e.length - first < kTile ? e.length - first : kTile;
  const std::int64_t at = query_begin(e, head) + (first - first_query) * rows.q_stride;
  load_tile(query_tile, q + at, rows.q_stride, begin, end, e.width);

  const int row = lanes.row_of_tile();
  const auto score_at = [&](std::int64_t k0, int i) {
    const bool is_seen = k0 + lanes.column(i) <= first + row;
    return is_seen ? scores[lanes.row * kScoreStride + lanes.column(i)] * scale : -INFINITY;
  };
  const auto chunks_at = [&](std::int64_t k0) { return k0 == first ? lanes.warp + 1 : kAllChunks; };

  float highest = -FLT_MAX, total = 0;
  for (std::int64_t k0 = 0; k0 <= first; k0 += kTile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride;
    __syncthreads();  // all have finished with the last tile
    load_tile(key_tile, k + from, rows.kv_stride, 0, e.length - k0, e.width);
    __syncthreads();
    multiply_rows(scores, queries, key_tile, stride, 0, chunks_at(k0));
    __syncwarp();
    float top = highest, sum = 0;
    for (int i = 0; i < kColumnsOfLane; ++i) top = fmaxf(top, score_at(k0, i));
    top = largest_of_lanes<2>(top);
    for (int i = 0; i < kColumnsOfLane; ++i) sum += expf(score_at(k0, i) - top);
    total = total * expf(highest - top) + sum_of_lanes<2>(sum);
    highest = top;
  }

  Sums<Chunks> sums;
  for (std::int64_t k0 = 0; k0 <= first; k0 += kTile) {
    const std::int64_t from = key_begin(e, head) + k0 * rows.kv_stride, left = e.length - k0;
    __syncthreads();
    load_tile(key_tile, k + from, rows.kv_stride, 0, left, e.width);
    load_tile(value_tile, v + from, rows.kv_stride, 0, left, e.width);
    __syncthreads();
    multiply_rows(scores, queries, key_tile, stride, 0, chunks_at(k0));
    __syncwarp();
    for (int i = 0; i < kColumnsOfLane; i += 2) {
      Several<T, 2> pair;
      for (int n = 0; n < 2; ++n) pair.values[n] = narrow<T>(expf(score_at(k0, i + n) - highest));
      *reinterpret_cast<Several<T, 2>*>(weights + lanes.row * kWeightStride + lanes.column(i)) =
          pair;
    }
    __syncwarp();
    sums.add_product(weights, value_tile, stride, 0, chunks_at(k0));
  }

  const bool is_there = row >= begin && row < end;
  sums.store(out + at + row * rows.q_stride, is_there, 1.0F / total, e.width, scores);
  if (is_there && lanes.half == 0) {
    lse[lse_begin(e, head) + first - first_query + row] = highest + logf(total);
  }
}

}  // namespace

template <class T>
void attention_wmma(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
                    const AttentionExtents& e) {
  const std::int64_t tiles = (e.length + kTile - 1) / kTile - (e.length - e.queries) / kTile;
  with_chunks(e.width, [&](auto chunks) {
    launch_with_shared_memory("attention", tiles * e.batch * e.heads, kTensorThreads,
                              shared_nbytes(e.width, 3, 1), stream,
                              forward_kernel<chunks.value, Element<T>>, on_device(out), lse,
                              on_device(q), on_device(k), on_device(v), e, scale_of(e));
  });
}

template void attention_wmma(Stream, BFloat16*, float*, const BFloat16*, const BFloat16*,
                             const BFloat16*, const AttentionExtents&);
template void attention_wmma(Stream, Float16*, float*, const Float16*, const Float16*,
                             const Float16*, const AttentionExtents&);

}  // namespace fsdp::cuda
