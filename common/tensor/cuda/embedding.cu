// Bytes an element: 2 times its size forward, 3 backward (and 1 per element of the table that is
// set to zero). Memory limits the forward: on a card of 3.3 TB/s, 4 bytes an element of bfloat16
// are 825 G elements/s. The backward also compares tokens: a block per row reads all of them out of
// the cache, unless its own stands further ahead. That grows with the square of the distinct rows:
// 268 MB for 8192.
#include "tensor/cuda/embedding.h"

#include "tensor/cuda/index_check.h"
#include "tensor/cuda/rows.h"

namespace fsdp::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(T* out, const T* table, const std::int32_t* tokens, std::int64_t rows,
                  std::int64_t width, std::int64_t vocabulary, IndexError* error) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  const std::int32_t token = tokens[row];
  if (!is_in_range(token, row, vocabulary, threadIdx.x == 0, error)) return;
  for_fours_of_row(width, [&](std::int64_t i) {
    float values[4];
    load_four(values, table + token * width + i, width - i);
    store_four(out + row * width + i, values, width - i);
  });
}

constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kColumns = 4 * kThreads;  // of a block
constexpr int kTokens = 4;                       // that a thread compares at a time
constexpr int kChunk = kTokens * kThreads;       // that a block does
constexpr int kRowsAtOnce = 8;                   // whose loads are under way

/// Which of the thread's four tokens of a chunk, from first + 4 · thread on, are `token`, as bits;
/// none that lies outside [begin, end).
__device__ unsigned equal_tokens(const std::int32_t* tokens, std::int32_t token, std::int64_t first,
                                 std::int64_t begin, std::int64_t end) {
  const std::int64_t i = first + kTokens * threadIdx.x;
  std::int32_t found[kTokens];
  if (is_aligned(tokens) && i + kTokens <= end) {
    const auto four = *reinterpret_cast<const Four<std::int32_t>*>(tokens + i);
    for (int t = 0; t < kTokens; ++t) found[t] = four.values[t];
  } else {
    for (int t = 0; t < kTokens; ++t) found[t] = i + t < end ? tokens[i + t] : -1;
  }
  unsigned equal = 0;
  for (int t = 0; t < kTokens; ++t) {
    if (found[t] == token && i + t >= begin) equal |= 1U << static_cast<unsigned>(t);
  }
  return equal;
}

/// Whether any thread of the block says so. A second call needs a barrier before it.
__device__ bool any_of_block(bool value) {
  __shared__ int of_warps[kWarps];
  const int any = __any_sync(kWholeWarp, value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = any;
  __syncthreads();
  int of_all = 0;
  for (const int each : of_warps) of_all |= each;
  return of_all != 0;
}

/// Lists the rows of a chunk that a thread has found, `mine`, in their order; how many they are.
/// The list is there after a barrier; the barrier in here ends all reading of the list before.
__device__ int list_rows(int (&listed)[kChunk], unsigned mine) {
  __shared__ int of_warps[kWarps];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int before = 0, in_warp = 0;
  for (unsigned t = 0; t < kTokens; ++t) {
    const unsigned lanes = __ballot_sync(kWholeWarp, mine >> t & 1U);
    before += __popc(lanes & ((1U << lane) - 1));
    in_warp += __popc(lanes);
  }
  if (lane == 0) of_warps[warp] = in_warp;
  __syncthreads();
  int count = 0;
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warps[w];
    count += of_warps[w];
  }
  for (unsigned t = 0; t < kTokens; ++t) {
    if (mine >> t & 1U) listed[before++] = static_cast<int>(kTokens * threadIdx.x + t);
  }
  return count;
}

// A block has the row of the table that its token names, and kColumns columns, if the token stands
// here for the first time. It adds the gradients of all rows with this token, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(T* dtable, const T* dout, const std::int32_t* tokens, std::int64_t rows,
                   std::int64_t width, std::int64_t vocabulary, std::int64_t padding,
                   IndexError* error) {
  __shared__ int listed[kChunk];
  const std::int64_t row = blockIdx.x;
  const std::int32_t token = tokens[row];
  if (!is_in_range(token, row, vocabulary, threadIdx.x == 0 && blockIdx.y == 0, error)) return;
  if (token == padding) return;
  for (std::int64_t first = 0; first < row; first += kChunk) {
    if (any_of_block(equal_tokens(tokens, token, first, 0, row) != 0)) return;
    __syncthreads();
  }
  const std::int64_t column = blockIdx.y * kColumns + 4 * threadIdx.x, left = width - column;
  float sums[4];
  load_four(sums, dtable + token * width + column, left);
  for (std::int64_t first = row / kChunk * kChunk; first < rows; first += kChunk) {
    const int count = list_rows(listed, equal_tokens(tokens, token, first, row, rows));
    __syncthreads();
    for_whole_rows(
        [&](auto whole) {
          for (int i = 0; i < count; i += kRowsAtOnce) {
            float values[kRowsAtOnce][4];
            FSDP_UNROLL
            for (int r = 0; r < kRowsAtOnce; ++r) {
              const std::int64_t from = i + r < count ? first + listed[i + r] : row;
              load_four(values[r], dout + from * width + column, i + r < count ? left : 0, whole);
            }
            FSDP_UNROLL
            for (int r = 0; r < kRowsAtOnce; ++r) {
              for (int e = 0; e < 4; ++e)
                sums[e] = i + r < count ? sums[e] + values[r][e] : sums[e];
            }
          }
        },
        width, dout);
  }
  store_four(dtable + token * width + column, sums, left);
}

}  // namespace

template <class T>
void embedding(Stream stream, T* out, const T* table, const std::int32_t* tokens, std::int64_t rows,
               std::int64_t width, std::int64_t vocabulary, IndexError* error) {
  if (rows == 0) return;
  launch("embedding", blocks_for_rows(rows, width), threads_for_rows(width), 0, stream,
         gather_kernel<Element<T>>, on_device(out), on_device(table), tokens, rows, width,
         vocabulary, error);
}

template <class T>
void embedding_backward(Stream stream, T* dtable, const T* dout, const std::int32_t* tokens,
                        std::int64_t rows, std::int64_t width, std::int64_t vocabulary,
                        std::int64_t padding, bool add, IndexError* error) {
  if (!add && vocabulary * width > 0) {
    const auto nbytes = static_cast<std::size_t>(vocabulary * width) * sizeof(T);
    require(cudaMemsetAsync(dtable, 0, nbytes, stream), "embedding_backward");
  }
  if (rows == 0) return;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(std::max<std::int64_t>(
                                                   1, (width + kColumns - 1) / kColumns)));
  launch("embedding_backward", grid, kThreads, 0, stream, scatter_kernel<Element<T>>,
         on_device(dtable), on_device(dout), tokens, rows, width, vocabulary, padding, error);
}

#define FSDP_FOR(T)                                                                              \
  template void embedding(Stream, T*, const T*, const std::int32_t*, std::int64_t, std::int64_t, \
                          std::int64_t, IndexError*);                                            \
  template void embedding_backward(Stream, T*, const T*, const std::int32_t*, std::int64_t,      \
                                   std::int64_t, std::int64_t, std::int64_t, bool, IndexError*);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
