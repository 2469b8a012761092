#include "cuda_stand_in/mistakes.h"

#include "cuda_stand_in/device_checks.h"
#include "device/cuda/warp_instructions.h"

extern __shared__ __align__(16) unsigned char dynamic_shared_memory[];

namespace {

constexpr unsigned kAll = 0xffffffffU;

__device__ int thread_of_block() { return static_cast<int>(threadIdx.x); }
__device__ int thread_of_grid() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ float& dynamic(int i) { return reinterpret_cast<float*>(dynamic_shared_memory)[i]; }

__global__ void no_barrier(float* out) {
  __shared__ float tile[64];
  const int i = thread_of_block();
  tile[i] = static_cast<float>(i);
  out[i] = tile[(i + 1) % 64];
}

__global__ void no_second_barrier(float* out) {
  __shared__ float tile[64];
  const int i = thread_of_block();
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    tile[i] = static_cast<float>(i + round);
    __syncthreads();
    sum += tile[63 - i];
  }
  out[i] = sum;
}

__global__ void divergent_barrier(float* out) {
  const int i = thread_of_block();
  if (i >= 32) return;
  __syncthreads();
  out[i] = 1;
}

__global__ void two_barriers(float* out) {
  const int i = thread_of_block();
  if (i < 32) {
    __syncthreads();
    out[i] = 1;
  } else {
    __syncthreads();
    out[i] = 2;
  }
}

__global__ void divergent_shuffle(float* out) {
  const int i = thread_of_block();
  if (i < 16) out[i] = __shfl_xor_sync(kAll, static_cast<float>(i), 1);
}

__global__ void wrong_mask(float* out) {
  const int i = thread_of_block();
  out[i] = __shfl_xor_sync(0x0000ffffU, static_cast<float>(i), 1);
}

__global__ void lane_outside_mask(float* out) {
  const int i = thread_of_block();
  if (i < 16) out[i] = __shfl_sync(0x0000ffffU, static_cast<float>(i), 16);
}

__global__ void lanes_beyond_block(float* out) {
  const int i = thread_of_block();
  out[i] = __shfl_xor_sync(kAll, static_cast<float>(i), 1);
}

__global__ void past_the_end(float* out) { out[thread_of_grid() + 1] = 1; }

__global__ void past_the_end_of_tile(float* out) {
  __shared__ float tile[16];
  const int i = thread_of_block();
  float* place = tile + i;  // not seen by a compiler that checks constant bounds
  *place = 1;
  __syncthreads();
  out[i] = tile[0];
}

__global__ void past_dynamic_memory(float* out) {
  const int i = thread_of_block();
  dynamic(i) = 1;
  __syncthreads();
  out[i] = dynamic(i + 1);
}

__global__ void unwritten_tile(float* out) {
  __shared__ float tile[64];
  const int i = thread_of_block();
  if (i != 5) tile[i] = 1;
  __syncthreads();
  out[i] = tile[i];
}

__global__ void misaligned_vector(float* out) {
  const float4 loaded = *reinterpret_cast<const float4*>(out + 1);
  out[thread_of_grid()] = loaded.x;
}

struct alignas(16) FourFloats {
  float values[4];
};

struct SixteenFloats {
  float values[16];
};

__global__ void struct_past_the_end(float* out) {
  *reinterpret_cast<SixteenFloats*>(out + 56) = {};
}

__global__ void misaligned_struct(float* out) {
  const FourFloats loaded = *reinterpret_cast<const FourFloats*>(out + 33);
  float sum = 0;
  for (const float value : loaded.values) sum += value;
  out[thread_of_grid()] = sum;
}

__global__ void same_element(float* out) { out[0] = static_cast<float>(thread_of_grid()); }

__global__ void same_element_of_tile(float* out) {
  __shared__ float tile[1];
  tile[0] = static_cast<float>(thread_of_block());
  __syncthreads();
  out[thread_of_grid()] = tile[0];
}

__global__ void between_blocks(float* out) {
  const int i = thread_of_grid();
  out[i] = static_cast<float>(i);
  out[i] += out[(i + 32) % 64];
}

__global__ void no_syncwarp(float* out) {
  __shared__ float tile[32];
  const int i = thread_of_block();
  tile[i] = static_cast<float>(i);
  if (i < 16) out[i] = tile[i + 16];
}

__global__ void shuffle_as_barrier(float* out) {
  __shared__ float tile[32];
  const int i = thread_of_block();
  tile[i] = static_cast<float>(i);
  const float other = __shfl_xor_sync(kAll, tile[i], 1);
  out[i] = other + tile[(i + 1) % 32];
}

__global__ void late_wait(float* out) {
  __shared__ float tile[64];
  const int i = thread_of_block();
  if (i < 16) fsdp::cuda::cp_async<16>(fsdp::cuda::shared_address(tile + 4 * i), out + 4 * i, true);
  __syncthreads();
  fsdp::cuda::cp_async_wait();
  const float other = tile[63 - i];
  __syncthreads();
  out[i] = other;
}

__global__ void no_wait(float* out) {
  __shared__ float tile[64];
  const int i = thread_of_block();
  fsdp::cuda::cp_async<16>(fsdp::cuda::shared_address(tile + 4 * i), out + 4 * i, i < 8);
  if (i < 15) fsdp::cuda::cp_async_wait();
}

__global__ void misaligned_copy(float* out) {
  __shared__ float tile[64];
  fsdp::cuda::cp_async<16>(fsdp::cuda::shared_address(tile), out + 1, true);
  fsdp::cuda::cp_async_wait();
}

__global__ void misaligned_copy_to(float* out) {
  __shared__ float tile[64];
  fsdp::cuda::cp_async<8>(fsdp::cuda::shared_address(tile + 1), out, true);
  fsdp::cuda::cp_async_wait();
}

__global__ void misaligned_row(float* out) {
  __shared__ float tile[256];
  const int i = thread_of_block();
  for (int j = 0; j < 8; ++j) tile[8 * i + j] = 0;
  __syncthreads();
  unsigned tiles[4];
  fsdp::cuda::ldmatrix_x4(tiles, fsdp::cuda::shared_address(tile + 4 * i + (i == 7 ? 2 : 0)));
  out[i] = static_cast<float>(tiles[0]);
}

__global__ void noted_less_memory(float* out) {
  fsdp::cuda::note_shared_memory<124>();
  dynamic(thread_of_block()) = 0;
  out[thread_of_block()] = dynamic(thread_of_block());
}

__global__ void increment_kernel(float* out, const float* in, int n) {
  const int i = thread_of_grid();
  if (i < n) out[i] = in[i] + 1;
}

}  // namespace

namespace mistakes {

void run(Kernel kernel, cudaStream_t stream, float* out) {
  const auto start = [&](unsigned blocks, unsigned threads, void (*which)(float*)) {
    launch(blocks, threads, threads * sizeof(float), stream, which, out);
  };
  switch (kernel) {
    case Kernel::no_barrier:
      return start(1, 64, no_barrier);
    case Kernel::no_second_barrier:
      return start(1, 64, no_second_barrier);
    case Kernel::divergent_barrier:
      return start(1, 64, divergent_barrier);
    case Kernel::two_barriers:
      return start(1, 64, two_barriers);
    case Kernel::divergent_shuffle:
      return start(1, 32, divergent_shuffle);
    case Kernel::wrong_mask:
      return start(1, 32, wrong_mask);
    case Kernel::lane_outside_mask:
      return start(1, 32, lane_outside_mask);
    case Kernel::lanes_beyond_block:
      return start(1, 16, lanes_beyond_block);
    case Kernel::past_the_end:
      return start(2, 32, past_the_end);
    case Kernel::past_the_end_of_tile:
      return start(1, 17, past_the_end_of_tile);
    case Kernel::past_dynamic_memory:
      return start(1, 32, past_dynamic_memory);
    case Kernel::unwritten_tile:
      return start(1, 64, unwritten_tile);
    case Kernel::misaligned_vector:
      return start(2, 32, misaligned_vector);
    case Kernel::struct_past_the_end:
      return start(1, 1, struct_past_the_end);
    case Kernel::misaligned_struct:
      return start(1, 8, misaligned_struct);
    case Kernel::same_element:
      return start(2, 32, same_element);
    case Kernel::same_element_of_tile:
      return start(2, 32, same_element_of_tile);
    case Kernel::between_blocks:
      return start(2, 32, between_blocks);
    case Kernel::no_syncwarp:
      return start(1, 32, no_syncwarp);
    case Kernel::shuffle_as_barrier:
      return start(1, 32, shuffle_as_barrier);
    case Kernel::late_wait:
      return start(1, 64, late_wait);
    case Kernel::no_wait:
      return start(1, 16, no_wait);
    case Kernel::misaligned_copy:
      return start(1, 1, misaligned_copy);
    case Kernel::misaligned_copy_to:
      return start(1, 1, misaligned_copy_to);
    case Kernel::misaligned_row:
      return start(1, 32, misaligned_row);
    case Kernel::noted_less_memory:
      return start(1, 32, noted_less_memory);
  }
}

void increment(cudaStream_t stream, float* out, const float* in, int n) {
  launch(static_cast<unsigned>((n + 31) / 32), 32, 0, stream, increment_kernel, out, in, n);
}

float sum_on_host(const float* values, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += values[i];
  return sum;
}

}  // namespace mistakes
