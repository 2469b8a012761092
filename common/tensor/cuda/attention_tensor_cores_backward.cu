// The backward of attention_tensor_cores.cu: with weights p = e^(s - lse) and ds = p (dout · v -
// delta), dq = Σ scale · ds · k, dk = Σ scale · ds · q, dv = Σ p · dout. Two kernels and no
// atomics, so that each sum has one fixed order; s and p are computed in both, and p and ds are
// rounded to 16 bits before they are multiplied. Flops: 3 products of 2·64·64·D per pair of tiles
// for dq, 4 for dk and dv (with atomics it would be 5 in all).
//
// A row's terms are (lse · log2 e, delta = Σ dout · out). If rows are loaded 16 bytes at once, a
// kernel before the two computes them, and they wait in the first eight bytes of the row's dq,
// which query_kernel, the last one, overwrites. Else each block computes those that it needs.
#include "tensor/cuda/attention_tensor_cores.h"

namespace fsdp::cuda {
namespace {

using namespace tensor_cores;

constexpr int kTermsNbytes = 8;  // of a row

/// Calls store(row, terms) for the rows [0, Rows) of a tile, of which those from `end` on are zero.
/// Row 0 is at `dout`, `out` and `lse`. Which lane adds what depends on D alone.
template <int D, int Rows, class T, class Store>
__device__ __forceinline__ void compute_terms(const T* dout, const T* out, const float* lse,
                                              std::int64_t stride, int end, std::int64_t width,
                                              Store store) {
  constexpr int kLanes = kLanesOfRow<D>, kAtOnce = kTensorThreads / kLanes;
  const int thread = static_cast<int>(threadIdx.x), column = thread % kLanes * 8;
  for (int row = thread / kLanes; row < Rows; row += kAtOnce) {
    const std::int64_t at = row * stride + column, count = row < end ? width - column : 0;
    float sum = 0;
    FSDP_UNROLL
    for (int n = 0; n < 8; n += 4) {
      float a[4], b[4];
      load_four(a, dout + at + n, count - n);
      load_four(b, out + at + n, count - n);
      FSDP_UNROLL
      for (int i = 0; i < 4; ++i) sum = fmaf(a[i], b[i], sum);
    }
    sum = sum_of_lanes<kLanes>(sum);
    if (column == 0) store(row, make_float2(row < end ? lse[row] * kLog2E : 0, sum));
  }
}

constexpr int kRowsOfTerms = 64;

template <int D, class T>
__global__ void __launch_bounds__(kTensorThreads)
    row_kernel(T* dq, const T* dout, const T* out, const float* lse, AttentionExtents e) {
  const HeadRows rows(e);
  const Head head = head_of_block(e);
  const int first = static_cast<int>(blockIdx.z) * kRowsOfTerms;
  const int end = static_cast<int>(e.length) - first;
  const std::int64_t at = query_begin(e, head) + first * rows.q_stride;
  compute_terms<D, kRowsOfTerms>(dout + at, out + at, lse + lse_begin(e, head) + first,
                                 rows.q_stride, end, e.width, [&](int row, float2 terms) {
                                   if (row < end)
                                     *reinterpret_cast<float2*>(dq + at + row * rows.q_stride) =
                                         terms;
                                 });
}

/// Loads the terms of the rows [0, Rows) of a tile, of which those from `end` on are zero, to
/// shared memory. They are there after cp_async_wait() and a barrier.
template <bool kIsWhole, int D, int Rows, class T>
__device__ __forceinline__ void load_terms(SharedAddress to, const T* dq, const T* dout,
                                           const T* out, const float* lse, std::int64_t stride,
                                           int end, std::int64_t width) {
  if constexpr (kIsWhole) {
    const int row = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(stride);  // small enough, as in load_tile()
    if (row < Rows) cp_async<kTermsNbytes>(to + kTermsNbytes * row, dq + row * step, row < end);
  } else {
    compute_terms<D, Rows>(dout, out, lse, stride, end, width, [&](int row, float2 terms) {
      store_vector(to + kTermsNbytes * row, terms);
    });
  }
}

namespace of_queries {

constexpr int M = 2;  // tiles of 16 rows per warp
constexpr int kQueries = kWarps * 16 * M;
template <bool kIsWhole, int D>
constexpr int kKeys = D <= 64    ? 64
                      : kIsWhole ? 32
                                 : 16;  // for which there are registers
template <int D>
constexpr int kStages = 2 * kQueries* kRowNbytes<D>;  // behind queries and douts
template <bool kIsWhole, int D>
constexpr int kTerms = kStages<D> + 4 * kKeys<kIsWhole, D>* kRowNbytes<D>;
template <bool kIsWhole, int D>
constexpr std::size_t kSharedNbytes = kTerms<kIsWhole, D> + kQueries* kTermsNbytes;

}  // namespace of_queries

// A block has a tile of queries. Compare forward_kernel.
template <bool kIsWhole, int D, class T>
__global__ void __launch_bounds__(kTensorThreads)
    query_kernel(T* dq, const T* dout, const T* out, const float* lse, const T* q, const T* k,
                 const T* v, AttentionExtents e, float scale) {
  using namespace of_queries;
  note_shared_memory<kSharedNbytes<kIsWhole, D>>();
  constexpr int Keys = kKeys<kIsWhole, D>, kTileNbytes = Keys * kRowNbytes<D>;
  constexpr int kTermsAt = kTerms<kIsWhole, D>;
  const HeadRows rows(e);
  const Lane lane;
  const SharedAddress query_tile = shared_address(dynamic_shared_memory);

  const int length = static_cast<int>(e.length);
  const int first = static_cast<int>(gridDim.z - 1 - blockIdx.z) * kQueries;  // the longest first
  const int end = first + kQueries < length ? first + kQueries : length;      // of the keys
  const Head head = head_of_block(e);
  std::int64_t next = key_begin(e, head);  // where the keys are that are loaded next
  const std::int64_t queries = query_begin(e, head) + first * rows.q_stride;

  const auto load_stage = [&](int parity, int k0) {
    const SharedAddress stage = query_tile + kStages<D> + parity * (2 * kTileNbytes);
    load_tile<kIsWhole, D, Keys>(stage, k + next, rows.kv_stride, length - k0, e.width);
    load_tile<kIsWhole, D, Keys>(stage + kTileNbytes, v + next, rows.kv_stride, length - k0,
                                 e.width);
    next += Keys * rows.kv_stride;
  };
  load_tile<kIsWhole, D, kQueries>(query_tile, q + queries, rows.q_stride, length - first, e.width);
  load_tile<kIsWhole, D, kQueries>(query_tile + kQueries * kRowNbytes<D>, dout + queries,
                                   rows.q_stride, length - first, e.width);
  load_terms<kIsWhole, D, kQueries>(query_tile + kTermsAt, dq + queries, dout + queries,
                                    out + queries, lse + lse_begin(e, head) + first, rows.q_stride,
                                    length - first, e.width);
  load_stage(0, 0);

  const int warp_row = 16 * M * lane.warp;
  const SharedRows<D, M> shared_queries(query_tile + warp_row * kRowNbytes<D>, lane);
  const SharedRows<D, M, kQueries * kRowNbytes<D>> shared_douts(shared_queries);
  const float scale_log2 = scale * kLog2E;
  Sums<T, M, D> sums;
  for (int k0 = 0, parity = 0; k0 < end; k0 += Keys, parity = 1 - parity) {
    cp_async_wait();
    __syncthreads();  // all see this stage, and have finished with the other
    if (k0 + Keys < end) load_stage(1 - parity, k0 + Keys);
    const int ahead = first + warp_row - k0;
    if (ahead + 16 * M - 1 < 0) continue;  // this warp sees none of them
    const SharedAddress base = query_tile + parity * (2 * kTileNbytes);  // the stage is behind it

    Sums<T, M, Keys> weights, dweights;
    weights.template add_transposed<D, kStages<D>>(shared_queries, base, lane);
    if (ahead < Keys - 1) {
      const int last = ahead + lane.row() - lane.column();
      weights.hide([&](int place) { return place > last; });
    }
    dweights.template add_transposed<D, kStages<D> + kTileNbytes>(shared_douts, base, lane);
    const unsigned char* const terms =
        dynamic_shared_memory + kTermsAt + (warp_row + lane.row()) * kTermsNbytes;
    FSDP_UNROLL
    for (int m = 0; m < M; ++m) {
      FSDP_UNROLL
      for (int h = 0; h < 2; ++h) {
        const auto of_row =
            *reinterpret_cast<const float2*>(terms + (16 * m + 8 * h) * kTermsNbytes);
        FSDP_UNROLL
        for (int j = 0; j < Keys / 8; ++j) {
          FSDP_UNROLL
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            const float p = fast_exp2(fmaf(weights.at[m][j][i], scale_log2, -of_row.x));
            dweights.at[m][j][i] = p * (dweights.at[m][j][i] - of_row.y);
          }
        }
      }
    }
    sums.template add_product<kStages<D>>(dweights, base, lane);
  }
  float scales[M][2];
  FSDP_UNROLL
  for (int m = 0; m < M; ++m) scales[m][0] = scales[m][1] = scale;
  sums.template store<kIsWhole>(dq + queries + warp_row * rows.q_stride, rows.q_stride,
                                length - first - warp_row, e.width, scales,
                                dynamic_shared_memory + warp_row * kRowNbytes<D>, lane);
}

namespace of_keys {

template <int D>
constexpr int M = D <= 64 ? 2 : 1;  // tiles of 16 rows per warp, for which there are registers
template <int D>
constexpr int kKeys = kWarps * 16 * M<D>;
template <bool kIsWhole, int D>
constexpr int kQueries = D <= 64 || !kIsWhole ? 32 : 64;
template <int D>
constexpr int kStages = 2 * kKeys<D>* kRowNbytes<D>;  // behind keys and values
template <bool kIsWhole, int D>
constexpr int kTerms = kStages<D> + 4 * kQueries<kIsWhole, D>* kRowNbytes<D>;
template <bool kIsWhole, int D>
constexpr std::size_t kSharedNbytes = kTerms<kIsWhole, D> + 2 * kQueries<kIsWhole, D>* kTermsNbytes;

}  // namespace of_keys

// A block has a tile of keys and values, and meets the queries of all heads that share them, head
// after head. Scores are transposed: (keys, queries).
template <bool kIsWhole, int D, class T>
__global__ void __launch_bounds__(kTensorThreads)
    key_kernel(T* dk, T* dv, const T* dq, const T* dout, const T* out, const float* lse, const T* q,
               const T* k, const T* v, AttentionExtents e, float scale) {
  using of_keys::kQueries, of_keys::kKeys, of_keys::kStages, of_keys::kTerms;
  note_shared_memory<of_keys::kSharedNbytes<kIsWhole, D>>();
  constexpr int M = of_keys::M<D>, Queries = kQueries<kIsWhole, D>;
  constexpr int kTileNbytes = Queries * kRowNbytes<D>, kTermsAt = kTerms<kIsWhole, D>;
  constexpr int kKeysNbytes = kKeys<D> * kRowNbytes<D>;
  const HeadRows rows(e);
  const Lane lane;
  const SharedAddress key_tile = shared_address(dynamic_shared_memory);

  const int length = static_cast<int>(e.length);
  const int k0 = static_cast<int>(blockIdx.z) * kKeys<D>;  // the longest columns first
  const int group = static_cast<int>(e.heads) / static_cast<int>(e.kv_heads);
  const int kv_head = static_cast<int>(blockIdx.y), first_head = kv_head * group;
  const std::int64_t here = key_begin(e, {blockIdx.x, 0, kv_head}) + k0 * rows.kv_stride;

  // Where the first queries of a head are, and those that are loaded next.
  std::int64_t top = query_begin(e, {blockIdx.x, first_head, kv_head}) + k0 * rows.q_stride;
  std::int64_t next = top;
  const auto load_stage = [&](int parity, int h, int q0) {
    const SharedAddress stage = key_tile + kStages<D> + parity * (2 * kTileNbytes);
    const Head head{blockIdx.x, h, kv_head};
    // Element by element there are no registers for `next`.
    const std::int64_t from = kIsWhole ? next : query_begin(e, head) + q0 * rows.q_stride;
    load_tile<kIsWhole, D, Queries>(stage, q + from, rows.q_stride, length - q0, e.width);
    load_tile<kIsWhole, D, Queries>(stage + kTileNbytes, dout + from, rows.q_stride, length - q0,
                                    e.width);
    load_terms<kIsWhole, D, Queries>(
        key_tile + kTermsAt + parity * Queries * kTermsNbytes, dq + from, dout + from, out + from,
        lse + lse_begin(e, head) + q0, rows.q_stride, length - q0, e.width);
  };
  load_tile<kIsWhole, D, kKeys<D>>(key_tile, k + here, rows.kv_stride, length - k0, e.width);
  load_tile<kIsWhole, D, kKeys<D>>(key_tile + kKeysNbytes, v + here, rows.kv_stride, length - k0,
                                   e.width);
  load_stage(0, first_head, k0);

  const int warp_row = 16 * M * lane.warp;
  const SharedRows<D, M> keys(key_tile + warp_row * kRowNbytes<D>, lane);
  const SharedRows<D, M, kKeysNbytes> values(keys);
  const float scale_log2 = scale * kLog2E;
  Sums<T, M, D> dk_sums, dv_sums;
  int parity = 0, head = first_head, after = 0;  // the stage, its head, how far it is behind k0
  for (; head < first_head + group; parity = 1 - parity) {
    const int ahead = warp_row - after;
    after += Queries;  // of the next stage
    next += Queries * rows.q_stride;
    if (after >= length - k0) {
      after = 0;
      ++head;
      top += e.width;
      next = top;
    }
    cp_async_wait();
    __syncthreads();  // all see this stage, and have finished with the other
    if (head < first_head + group) load_stage(1 - parity, head, k0 + after);
    const SharedAddress base = key_tile + parity * (2 * kTileNbytes);  // the stage is behind it
    const unsigned char* const terms =
        dynamic_shared_memory + kTermsAt + (parity * Queries + lane.column()) * kTermsNbytes;
    if (ahead > Queries - 1) continue;  // none of them sees a key of this warp

    Sums<T, M, Queries> weights, dweights;
    weights.template add_transposed<D, kStages<D>>(keys, base, lane);
    if (ahead + 16 * M - 1 > 0) {
      const int least = ahead + lane.row() - lane.column();
      weights.hide([&](int place) { return place < least; });
    }
    dweights.template add_transposed<D, kStages<D> + kTileNbytes>(values, base, lane);
    FSDP_UNROLL
    for (int j = 0; j < Queries / 8; ++j) {
      const auto two = *reinterpret_cast<const float4*>(terms + 8 * j * kTermsNbytes);  // queries
      FSDP_UNROLL
      for (int m = 0; m < M; ++m) {
        FSDP_UNROLL
        for (int i = 0; i < 4; ++i) {
          float &p = weights.at[m][j][i], &ds = dweights.at[m][j][i];
          p = fast_exp2(fmaf(p, scale_log2, i % 2 == 0 ? -two.x : -two.z));
          ds = p * (ds - (i % 2 == 0 ? two.y : two.w));
        }
      }
    }
    dv_sums.template add_product<kStages<D> + kTileNbytes>(weights, base, lane);
    dk_sums.template add_product<kStages<D>>(dweights, base, lane);
  }

  float scales[M][2], ones[M][2];
  FSDP_UNROLL
  for (int m = 0; m < M; ++m) {
    scales[m][0] = scales[m][1] = scale;
    ones[m][0] = ones[m][1] = 1;
  }
  const std::int64_t to = here + warp_row * rows.kv_stride;
  unsigned char* const own = dynamic_shared_memory + warp_row * kRowNbytes<D>;
  const int left = length - k0 - warp_row;
  dk_sums.template store<kIsWhole>(dk + to, rows.kv_stride, left, e.width, scales, own, lane);
  dv_sums.template store<kIsWhole>(dv + to, rows.kv_stride, left, e.width, ones, own + kKeysNbytes,
                                   lane);
}

}  // namespace

template <class T>
void attention_backward_tensor_cores(Stream stream, T* dq, T* dk, T* dv, const T* dout,
                                     const T* out, const float* lse, const T* q, const T* k,
                                     const T* v, const AttentionExtents& e) {
  constexpr auto kName = "attention_backward";
  with_way(e, {dq, dk, dv, dout, out, q, k, v}, [&](auto whole, auto columns) {
    constexpr bool kIsWhole = whole.value;
    constexpr int D = columns.value;
    using E = Element<T>;
    const auto grid = [&](std::int64_t heads, int rows) {
      return grid_of(e.batch, heads, tiles_of(e.length, rows));
    };
    if constexpr (kIsWhole) {
      launch(kName, grid(e.heads, kRowsOfTerms), kTensorThreads, 0, stream, row_kernel<D, E>,
             on_device(dq), on_device(dout), on_device(out), lse, e);
    }
    launch_with_shared_memory<key_kernel<kIsWhole, D, E>>(
        kName, grid(e.kv_heads, of_keys::kKeys<D>), kTensorThreads,
        of_keys::kSharedNbytes<kIsWhole, D>, stream, on_device(dk), on_device(dv), on_device(dq),
        on_device(dout), on_device(out), lse, on_device(q), on_device(k), on_device(v), e,
        scale_of(e));
    launch_with_shared_memory<query_kernel<kIsWhole, D, E>>(
        kName, grid(e.heads, of_queries::kQueries), kTensorThreads,
        of_queries::kSharedNbytes<kIsWhole, D>, stream, on_device(dq), on_device(dout),
        on_device(out), lse, on_device(q), on_device(k), on_device(v), e, scale_of(e));
  });
}

#define FSDP_FOR(T)                                                                         \
  template void attention_backward_tensor_cores(Stream, T*, T*, T*, const T*, const T*,     \
                                                const float*, const T*, const T*, const T*, \
                                                const AttentionExtents&);
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
