// Bytes an element: its size, read once, and one addition. sum_rows: memory limits it where the
// columns fill the card, 32 to a block; a matrix of 4096 columns has 128 blocks. sum works in one
// block, for losses and other short tensors: its order of additions would need a second kernel for
// the chunks of a long one.
#include "tensor/cuda/reductions.h"

#include "tensor/cuda/pointwise.h"

namespace fsdp::cuda {
namespace {

// As in column_sums.h: groups of rows, each summed from zero, are added one after another.
constexpr int kRowGroup = 64;
constexpr int kColumns = 32, kGroups = 16;  // of a block, at a time

template <class T>
__global__ void __launch_bounds__(kColumns* kGroups)
    sum_rows_kernel(T* out, const T* in, std::int64_t rows, std::int64_t width, bool adds) {
  __shared__ float sums[kGroups][kColumns];
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::int64_t at_once = kGroups * kRowGroup;
  float total = 0;
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    const std::int64_t first = begin + threadIdx.y * kRowGroup;
    const std::int64_t last = first + kRowGroup < rows ? first + kRowGroup : rows;
    float sum = 0;
    if (j < width) {
      for (std::int64_t r = first; r < last; ++r) sum += widen(in[r * width + j]);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0) {
      for (int g = 0; g < kGroups && begin + g * kRowGroup < rows; ++g) {
        total += sums[g][threadIdx.x];
      }
    }
    __syncthreads();
  }
  if (threadIdx.y != 0 || j >= width) return;
  out[j] = narrow<T>(adds ? widen(out[j]) + total : total);
}

// As in reductions.cpp: chunks, each of one sum per lane, are added in double.
constexpr std::int64_t kChunk = 4096;
constexpr int kLanes = 8, kChunksAtOnce = 128;

template <class T>
__global__ void __launch_bounds__(kLanes* kChunksAtOnce)
    sum_kernel(float* out, const T* in, std::int64_t n) {
  __shared__ float sums[kChunksAtOnce];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int chunk = static_cast<int>(threadIdx.x) / kLanes;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kChunksAtOnce * kChunk) {
    const std::int64_t first = begin + chunk * kChunk;
    const std::int64_t last = first + kChunk < n ? first + kChunk : n;
    float partial = 0;
    for (std::int64_t i = first + lane; i < last; i += kLanes) partial += widen(in[i]);
    // The tree of simd::sum: halves, then quarters, then pairs.
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      partial += __shfl_down_sync(0xffffffffU, partial, distance, kLanes);
    }
    if (lane == 0) sums[chunk] = partial;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int c = 0; c < kChunksAtOnce && begin + c * kChunk < n; ++c) {
        total += static_cast<double>(sums[c]);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = static_cast<float>(total);
}

}  // namespace

template <class T>
void sum_rows(Stream stream, T* out, const T* in, std::int64_t rows, std::int64_t width,
              ops::Write write) {
  if (width == 0) return;
  const auto blocks = static_cast<unsigned>((width + kColumns - 1) / kColumns);
  launch("sum_rows", blocks, dim3(kColumns, kGroups), 0, stream, sum_rows_kernel<Element<T>>,
         on_device(out), on_device(in), rows, width, write == ops::Write::add);
}

template <class T>
void sum(Stream stream, float* out, const T* in, std::int64_t n) {
  // No element may lie at the end of its memory, which is no address that a kernel may have.
  launch("sum", 1, kLanes * kChunksAtOnce, 0, stream, sum_kernel<Element<T>>, out,
         n > 0 ? on_device(in) : nullptr, n);
}

#define FSDP_FOR(T)                                                                     \
  template void sum_rows(Stream, T*, const T*, std::int64_t, std::int64_t, ops::Write); \
  template void sum(Stream, float*, const T*, std::int64_t);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
