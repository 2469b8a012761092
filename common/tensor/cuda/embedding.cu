// Bytes an element: 2 times its size forward, 3 backward (and 1 per element of the table that is
// set to zero). Memory limits the forward: on a card of 3.3 TB/s, 4 bytes an element of bfloat16
// are 825 G elements/s. The backward also compares tokens: a warp per row and 512 columns reads all
// tokens, 128 at a time, out of the cache, unless its own stands further ahead. That grows with the
// square of the rows: 268 MB for 8192 rows and 512 columns.
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
constexpr int kFours = 4;                        // of a lane
constexpr std::int64_t kColumns = 128 * kFours;  // of a warp

constexpr int kTokens = 4;  // that a lane compares at a time

/// Which of the tokens at first + 4 · lane + 0 … 3 are `token`, as bits; none that lies outside
/// [begin, end).
__device__ unsigned equal_tokens(const std::int32_t* tokens, std::int32_t token, std::int64_t first,
                                 std::int64_t begin, std::int64_t end) {
  const std::int64_t i = first + kTokens * (threadIdx.x % 32);
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

// A warp has the row of the table that its token names, and kColumns columns, if the token stands
// here for the first time. It adds the gradients of all rows with this token, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(T* dtable, const T* dout, const std::int32_t* tokens, std::int64_t rows,
                   std::int64_t width, std::int64_t vocabulary, IndexError* error) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= rows) return;
  const std::int32_t token = tokens[row];
  if (!is_in_range(token, row, vocabulary, lane == 0 && blockIdx.y == 0, error)) return;
  constexpr std::int64_t kAtOnce = std::int64_t{32} * kTokens;
  for (std::int64_t first = 0; first < row; first += kAtOnce) {
    const bool stood_before = equal_tokens(tokens, token, first, 0, row) != 0;
    if (__any_sync(kWholeWarp, stood_before) != 0) return;
  }
  const std::int64_t column = blockIdx.y * kColumns + 4 * lane;
  float sums[kFours][4];
  for (int f = 0; f < kFours; ++f) {
    const std::int64_t j = column + 128 * f;
    load_four(sums[f], dtable + token * width + j, width - j);
  }
  for (std::int64_t first = row / kAtOnce * kAtOnce; first < rows; first += kAtOnce) {
    const unsigned mine = equal_tokens(tokens, token, first, row, rows);
    for (unsigned lanes = __ballot_sync(kWholeWarp, mine != 0); lanes != 0; lanes &= lanes - 1) {
      const int having = __ffs(static_cast<int>(lanes)) - 1;
      for (unsigned equal = __shfl_sync(kWholeWarp, mine, having); equal != 0; equal &= equal - 1) {
        const std::int64_t from = first + kTokens * having + __ffs(static_cast<int>(equal)) - 1;
        for (int f = 0; f < kFours; ++f) {
          const std::int64_t j = column + 128 * f;
          float values[4];
          load_four(values, dout + from * width + j, width - j);
          for (int e = 0; e < 4; ++e) sums[f][e] += values[e];
        }
      }
    }
  }
  for (int f = 0; f < kFours; ++f) {
    const std::int64_t j = column + 128 * f;
    store_four(dtable + token * width + j, sums[f], width - j);
  }
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
                        std::int64_t rows, std::int64_t width, std::int64_t vocabulary, bool add,
                        IndexError* error) {
  if (!add && vocabulary * width > 0) {
    const auto nbytes = static_cast<std::size_t>(vocabulary * width) * sizeof(T);
    require(cudaMemsetAsync(dtable, 0, nbytes, stream), "embedding_backward");
  }
  if (rows == 0) return;
  const dim3 grid(
      static_cast<unsigned>((rows + kWarps - 1) / kWarps),
      static_cast<unsigned>(std::max<std::int64_t>(1, (width + kColumns - 1) / kColumns)));
  launch("embedding_backward", grid, kThreads, 0, stream, scatter_kernel<Element<T>>,
         on_device(dtable), on_device(dout), tokens, rows, width, vocabulary, error);
}

#define FSDP_FOR(T)                                                                              \
  template void embedding(Stream, T*, const T*, const std::int32_t*, std::int64_t, std::int64_t, \
                          std::int64_t, IndexError*);                                            \
  template void embedding_backward(Stream, T*, const T*, const std::int32_t*, std::int64_t,      \
                                   std::int64_t, std::int64_t, bool, IndexError*);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
