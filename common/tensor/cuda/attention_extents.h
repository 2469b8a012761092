/// @file
/// @ingroup tensor
/// Where a block of attention is, and which kernel has it, for .cu files.
#pragma once

#include "device/cuda/elements.h"
#include "device/cuda/launch.h"
#include "tensor/cuda/attention.h"

#include <cstdint>

extern __shared__ __align__(256) unsigned char dynamic_shared_memory[];

namespace fsdp::cuda {

/// The arrays of the forward, and the rows of a head in them.
struct HeadRows {
  std::int64_t q_stride, kv_stride;  ///< elements from one position to the next

  __host__ __device__ explicit HeadRows(const AttentionExtents& e)
      : q_stride(e.heads * e.width), kv_stride(e.kv_heads * e.width) {}
};

/// The head that a block works on.
struct Head {
  std::int64_t batch, head, kv_head;
};

__device__ inline Head head_of(const AttentionExtents& e, std::int64_t index) {
  const std::int64_t head = index % e.heads;
  return {index / e.heads, head, head / (e.heads / e.kv_heads)};
}

/// Where the first position of a head lies: in q, out and their gradients, in k and v, in lse.
__device__ inline std::int64_t query_begin(const AttentionExtents& e, const Head& at) {
  return at.batch * e.queries * e.heads * e.width + at.head * e.width;
}
__device__ inline std::int64_t key_begin(const AttentionExtents& e, const Head& at) {
  return at.batch * e.length * e.kv_heads * e.width + at.kv_head * e.width;
}
__device__ inline std::int64_t lse_begin(const AttentionExtents& e, const Head& at) {
  return (at.batch * e.heads + at.head) * e.queries;
}

inline float scale_of(const AttentionExtents& e) {
  return static_cast<float>(1 / sqrt(static_cast<double>(e.width)));
}

/// Bytes of shared memory that a block can have on every card: those of 8.6, 8.9 and 12.0 have no
/// more.
inline constexpr std::size_t kMostSharedMemory = 99 * 1024;

/// Starts a kernel that may need more shared memory than a block gets without asking. Each
/// thread asks once per kernel and device.
template <auto kKernel, class... Actual>
void launch_with_shared_memory(const char* name, dim3 grid, unsigned threads, std::size_t nbytes,
                               Stream stream, Actual... arguments) {
  thread_local std::uint64_t asked = 0;  // a bit for each of the first 64 devices
  int device = 0;
  require(cudaGetDevice(&device), name);
  const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
  if ((asked & bit) == 0) {
    require(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kMostSharedMemory)),
            name);
    asked |= bit;
  }
  launch(name, grid, threads, nbytes, stream, kKernel, arguments...);
}

/// The kernels of plain float32 arithmetic, for any format and width up to kWidestHead.
template <class T>
void attention_plain(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
                     const AttentionExtents& e);
template <class T>
void attention_backward_plain(Stream stream, T* dq, T* dk, T* dv, const T* dout, const T* out,
                              const float* lse, const T* q, const T* k, const T* v,
                              const AttentionExtents& e);

/// The kernels of tensor cores, for BFloat16 and Float16.
inline constexpr std::int64_t kWidestOnTensorCores = 128;
template <class T>
void attention_tensor_cores(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
                            const AttentionExtents& e);
template <class T>
void attention_backward_tensor_cores(Stream stream, T* dq, T* dk, T* dv, const T* dout,
                                     const T* out, const float* lse, const T* q, const T* k,
                                     const T* v, const AttentionExtents& e);

}  // namespace fsdp::cuda
