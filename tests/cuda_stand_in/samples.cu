#include "cuda_stand_in/samples.h"

#include "cuda_stand_in/device_checks.h"

extern __shared__ __align__(16) unsigned char dynamic_shared_memory[];

namespace {

constexpr unsigned kAll = 0xffffffffU;

__global__ void __launch_bounds__(256)
    add_kernel(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b,
               int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < n) {
    const float4 x = *reinterpret_cast<const float4*>(a + i);
    const float4 y = *reinterpret_cast<const float4*>(b + i);
    *reinterpret_cast<float4*>(out + i) = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  } else {
    for (int j = i; j < n; ++j) out[j] = __fadd_rn(__ldg(a + j), b[j]);
  }
}

__device__ float sum_of_warp(float value) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(kAll, value, mask);
  return value;
}

__global__ void sum_rows_kernel(float* sums, const float* x, int width) {
  __shared__ float partial[32];
  const float* row = x + static_cast<std::size_t>(blockIdx.x) * static_cast<unsigned>(width);
  float sum = 0;
  for (int j = static_cast<int>(threadIdx.x); j < width; j += static_cast<int>(blockDim.x)) {
    sum += row[j];
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = sum_of_warp(threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }
}

constexpr int kTile = 16;

__global__ void transpose_kernel(float* out, const float* x, int rows, int columns) {
  __shared__ float tile[kTile][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int row0 = static_cast<int>(blockIdx.y) * kTile;
  const int column0 = static_cast<int>(blockIdx.x) * kTile;
  if (row0 + ty < rows && column0 + tx < columns) {
    tile[ty][tx] = x[(row0 + ty) * columns + column0 + tx];
  }
  __syncthreads();
  if (row0 + tx < rows && column0 + ty < columns) {
    out[(column0 + ty) * rows + row0 + tx] = tile[tx][ty];
  }
}

__global__ void reverse_kernel(float* out, const float* in, int n) {
  float* all = reinterpret_cast<float*>(dynamic_shared_memory);
  const int i = static_cast<int>(threadIdx.x);
  all[i] = in[i];
  __syncthreads();
  out[i] = all[n - 1 - i];
}

__global__ void histogram_kernel(int* counts, const int* values, int n) {
  __shared__ int mine[8];
  if (threadIdx.x < 8) mine[threadIdx.x] = 0;
  __syncthreads();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) atomicAdd(&mine[values[i]], 1);
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
}

__global__ void scan_warp_kernel(int* out, const int* x, int n) {
  const int i = static_cast<int>(threadIdx.x);
  int sum = i < n ? x[i] : 0;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(kAll, sum, step);
    if (i >= step) sum += before;
  }
  if (i < n) out[i] = sum;
}

__global__ void take_tickets_kernel(int* out, int* next) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
}

__global__ void ask_lanes_kernel(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = __shfl_down_sync(kAll, i, 3, 8);
  out[32 + i] = __shfl_sync(kAll, i, 5, 8);
  out[64 + i] = __shfl_xor_sync(kAll, i, 9, 8);
  out[96 + i] = static_cast<int>(__ballot_sync(kAll, i % 3 == 0));
  out[128 + i] = __any_sync(kAll, i == 7) + 2 * __all_sync(kAll, i < 32);
}

unsigned pieces(int n, int size) { return static_cast<unsigned>((n + size - 1) / size); }

}  // namespace

namespace samples {

void add(cudaStream_t stream, float* out, const float* a, const float* b, int n) {
  launch(pieces(n, 1024), 256, 0, stream, add_kernel, out, a, b, n);
}

void sum_rows(cudaStream_t stream, float* sums, const float* x, int rows, int width,
              unsigned threads) {
  launch(static_cast<unsigned>(rows), threads, 0, stream, sum_rows_kernel, sums, x, width);
}

void transpose(cudaStream_t stream, float* out, const float* x, int rows, int columns) {
  launch({pieces(columns, kTile), pieces(rows, kTile)}, {kTile, kTile}, 0, stream, transpose_kernel,
         out, x, rows, columns);
}

void reverse(cudaStream_t stream, float* out, const float* in, int n) {
  const auto threads = static_cast<unsigned>(n);
  launch(1, threads, threads * sizeof(float), stream, reverse_kernel, out, in, n);
}

void histogram(cudaStream_t stream, int* counts, const int* values, int n) {
  launch(pieces(n, 64), 64, 0, stream, histogram_kernel, counts, values, n);
}

void take_tickets(cudaStream_t stream, int* out, int* next, int blocks) {
  launch(static_cast<unsigned>(blocks), 64, 0, stream, take_tickets_kernel, out, next);
}

void ask_lanes(cudaStream_t stream, int* out) { launch(1, 32, 0, stream, ask_lanes_kernel, out); }

void scan_warp(cudaStream_t stream, int* out, const int* x, int n) {
  launch(1, 32, 0, stream, scan_warp_kernel, out, x, n);
}

}  // namespace samples
