// Attention on tensor cores. A block has 128 queries and goes once over the keys up to its last
// query, tile by tile, while the next keys and values are on their way. Weights are e^(s - m) with
// the largest score m so far; when a tile brings a larger one, what was summed before is scaled
// down (online softmax). Flops: 2 products of 2·64·64·D per pair of tiles. Every sum has one fixed
// order.
#include "tensor/cuda/attention_tensor_cores.h"

namespace fsdp::cuda {
namespace {

using namespace tensor_cores;

constexpr int M = 2;  // tiles of 16 rows per warp
constexpr int kQueries = kWarps * 16 * M;
template <int D>
constexpr int kKeys = D <= 64 ? 64 : 48;  // for which there are registers
template <int D>
constexpr std::size_t kSharedNbytes = (kQueries + 4 * kKeys<D>)*kRowNbytes<D>;

template <bool kIsWhole, int D, class T>
__global__ void __launch_bounds__(kTensorThreads)
    forward_kernel(T* out, float* lse, const T* q, const T* k, const T* v, AttentionExtents e,
                   float scale) {
  note_shared_memory<kSharedNbytes<D>>();
  constexpr int Keys = kKeys<D>, kTileNbytes = Keys * kRowNbytes<D>;
  const HeadRows rows(e);
  const Lane lane;
  const SharedAddress query_tile = shared_address(dynamic_shared_memory);
  const SharedAddress stages = query_tile + kQueries * kRowNbytes<D>;  // keys, values; twice

  // The longest tiles first. Row r of a tile is position first + r, so a query has the same row,
  // and the same bits, whichever other queries are there.
  const int length = static_cast<int>(e.length), first_query = length - static_cast<int>(e.queries);
  const int first = ((length - 1) / kQueries - static_cast<int>(blockIdx.z)) * kQueries;
  const int end = first + kQueries < length ? first + kQueries : length;  // of the keys
  const Head head = head_of_block(e);
  std::int64_t next = key_begin(e, head);  // where the keys are that are loaded next
  // Of the position 0, which may lie before the array.
  const std::int64_t queries = query_begin(e, head) - first_query * rows.q_stride;

  const auto load_stage = [&](int parity, int k0) {
    const SharedAddress stage = stages + parity * (2 * kTileNbytes);
    load_tile<kIsWhole, D, Keys>(stage, k + next, rows.kv_stride, length - k0, e.width);
    load_tile<kIsWhole, D, Keys>(stage + kTileNbytes, v + next, rows.kv_stride, length - k0,
                                 e.width);
    next += Keys * rows.kv_stride;
  };
  load_tile<kIsWhole, D, kQueries>(query_tile, q + queries + first * rows.q_stride, rows.q_stride,
                                   length - first, e.width, first_query - first);
  load_stage(0, 0);

  const int warp_row = 16 * M * lane.warp;
  const SharedRows<D, M> shared_queries(query_tile + warp_row * kRowNbytes<D>, lane);
  constexpr bool kHoldsQueries = D <= 64;  // there are registers for it
  HeldRows<D, M> held_queries;

  const float scale_log2 = scale * kLog2E;
  float highest[M][2], total[M][2];  // of each row: its scores' maximum, in powers of 2; Σ weights
  FSDP_UNROLL
  for (int m = 0; m < M; ++m) {
    highest[m][0] = highest[m][1] = -FLT_MAX;
    total[m][0] = total[m][1] = 0;
  }
  Sums<T, M, D> sums;
  for (int k0 = 0, parity = 0; k0 < end; k0 += Keys, parity = 1 - parity) {
    cp_async_wait();
    __syncthreads();  // all see this stage, and have finished with the other
    if (k0 + Keys < end) load_stage(1 - parity, k0 + Keys);
    if constexpr (kHoldsQueries) {
      if (k0 == 0) held_queries.load(shared_queries);
    }
    if (k0 > first + warp_row + 16 * M - 1) continue;  // this warp sees none of them
    const SharedAddress stage = stages + parity * (2 * kTileNbytes);

    Sums<T, M, Keys> scores;
    if constexpr (kHoldsQueries) {
      scores.template add_transposed<D>(held_queries, stage, lane);
    } else {
      scores.template add_transposed<D>(shared_queries, stage, lane);
    }
    const int ahead = first + warp_row - k0;
    if (ahead < Keys - 1) {
      const int last = ahead + lane.row() - lane.column();
      scores.hide([&](int place) { return place > last; });
    }
    float tops[M][2];
    bool is_larger = false;
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      FSDP_UNROLL
      for (int h = 0; h < 2; ++h) {
        float top = scores.at[m][0][2 * h];
        FSDP_UNROLL
        for (int j = 0; j < Keys / 8; ++j) {
          top = fmaxf(top, fmaxf(scores.at[m][j][2 * h], scores.at[m][j][2 * h + 1]));
        }
        tops[m][h] = fmaxf(highest[m][h], largest_of_lanes<4>(top) * scale_log2);
        if (tops[m][h] > highest[m][h]) is_larger = true;
      }
    }
    if (__any_sync(kWholeWarp, is_larger)) {  // else all factors are 1
      FSDP_UNROLL
      for (int m = 0; m < M; ++m) {
        FSDP_UNROLL
        for (int h = 0; h < 2; ++h) {
          const float factor = fast_exp2(highest[m][h] - tops[m][h]);
          highest[m][h] = tops[m][h];
          total[m][h] *= factor;
          FSDP_UNROLL
          for (int j = 0; j < D / 8; ++j) {
            sums.at[m][j][2 * h] *= factor;
            sums.at[m][j][2 * h + 1] *= factor;
          }
        }
      }
    }
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      FSDP_UNROLL
      for (int j = 0; j < Keys / 8; ++j) {
        FSDP_UNROLL
        for (int i = 0; i < 4; ++i) {
          float& weight = scores.at[m][j][i];
          weight = fast_exp2(fmaf(weight, scale_log2, -highest[m][i / 2]));
          total[m][i / 2] += weight;  // of this lane's columns
        }
      }
    }
    sums.add_product(scores, stage + kTileNbytes, lane);
  }

  float factors[M][2];
  FSDP_UNROLL
  for (int m = 0; m < M; ++m) {
    FSDP_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float all = sum_of_lanes<4>(total[m][h]);
      const int row = first + warp_row + 16 * m + 8 * h + lane.row();
      factors[m][h] = 1.0F / all;
      if (lane.column() == 0 && row >= first_query && row < length) {
        lse[lse_begin(e, head) + row - first_query] = (highest[m][h] + log2f(all)) * kLn2;
      }
    }
  }
  const int row = first + warp_row;
  sums.template store<kIsWhole>(out + queries + row * rows.q_stride, rows.q_stride, length - row,
                                e.width, factors, dynamic_shared_memory + warp_row * kRowNbytes<D>,
                                lane, first_query - row);
}

}  // namespace

template <class T>
void attention_tensor_cores(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
                            const AttentionExtents& e) {
  const std::int64_t tiles = tiles_of(e.length, kQueries) - (e.length - e.queries) / kQueries;
  with_way(e, {out, q, k, v}, [&](auto whole, auto columns) {
    launch_with_shared_memory<forward_kernel<whole.value, columns.value, Element<T>>>(
        "attention", grid_of(e.batch, e.heads, tiles), kTensorThreads, kSharedNbytes<columns.value>,
        stream, on_device(out), lse, on_device(q), on_device(k), on_device(v), e, scale_of(e));
  });
}

template void attention_tensor_cores(Stream, BFloat16*, float*, const BFloat16*, const BFloat16*,
                                     const BFloat16*, const AttentionExtents&);
template void attention_tensor_cores(Stream, Float16*, float*, const Float16*, const Float16*,
                                     const Float16*, const AttentionExtents&);

}  // namespace fsdp::cuda
