// Bytes an element: 2 times its size forward, 3 backward (and 1 per element of the table that is
// set to zero). Memory limits the forward: on a card of 3.3 TB/s, 4 bytes an element of bfloat16
// are 825 G elements/s. The backward also compares tokens: a warp per row and 512 columns reads the
// tokens that follow its own, 4 bytes each out of the cache. That grows with the square of the
// rows: 134 MB for 8192 rows and 512 columns, about as much as their gradients.
#include "tensor/cuda/embedding.h"

#include "tensor/cuda/index_check.h"
#include "tensor/cuda/rows.h"

namespace fsdp::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(T* out, const T* table, const std::int32_t* tokens, std::int64_t width,
                  std::int64_t vocabulary, IndexError* error) {
  const std::int64_t row = blockIdx.x;
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
  for (std::int64_t first = 0; first < row; first += 32) {
    const std::int64_t i = first + lane;
    if (__any_sync(kWholeWarp, i < row && tokens[i] == token) != 0) return;
  }
  const std::int64_t column = blockIdx.y * kColumns + 4 * lane;
  float sums[kFours][4];
  for (int f = 0; f < kFours; ++f) {
    const std::int64_t j = column + 128 * f;
    load_four(sums[f], dtable + token * width + j, width - j);
  }
  for (std::int64_t first = row; first < rows; first += 32) {
    const std::int64_t i = first + lane;
    unsigned equal = __ballot_sync(kWholeWarp, i < rows && tokens[i] == token);
    for (; equal != 0; equal &= equal - 1) {
      const std::int64_t from = (first + __ffs(static_cast<int>(equal)) - 1) * width;
      for (int f = 0; f < kFours; ++f) {
        const std::int64_t j = column + 128 * f;
        float values[4];
        load_four(values, dout + from + j, width - j);
        for (int e = 0; e < 4; ++e) sums[f][e] += values[e];
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
  launch("embedding", static_cast<unsigned>(rows), threads_for_row(width), 0, stream,
         gather_kernel<Element<T>>, on_device(out), on_device(table), tokens, width, vocabulary,
         error);
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
