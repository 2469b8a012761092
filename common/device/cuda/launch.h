/// @file
/// @ingroup device
/// Starting kernels, for .cu files.
///
/// A .cu file is compiled twice: by nvcc for a card, and as C++ for the stand-in
/// (docs/cuda_stand_in.md). It sees raw pointers and sizes, never a Tensor. Its header declares
/// functions of the host, on element types of the library, and its functions enqueue kernels on a
/// stream and return at once.
#pragma once

#include "device/cuda/errors.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fsdp::cuda {

/// @throws Error if a call of CUDA's runtime failed; `call` is its name.
inline void require(cudaError_t answer, const char* call) {
  if (answer != cudaSuccess) fail_call(call, cudaGetErrorString(answer));
}

/// Starts `kernel` on `stream`, with `shared_nbytes` of dynamic shared memory for each block.
template <class... Expected, class... Actual>
void launch(const char* name, dim3 grid, dim3 block, std::size_t shared_nbytes, cudaStream_t stream,
            void (*kernel)(Expected...), Actual... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_nbytes;
  config.stream = stream;
  require(cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(arguments)...), name);
}

inline constexpr int kThreads = 256;  ///< of a block of a pointwise kernel

/// Blocks of kThreads for which a multiprocessor must have registers: at most 40 for a thread. Left
/// to itself, ptxas gives some kernels 64 on sm_100, and others 32, with which they spill.
inline constexpr int kBlocksAtOnce = 6;

/// Blocks of a pointwise kernel over n > 0 elements, whose threads take `each` elements at a time
/// and then stride over the grid: enough to fill any card.
inline unsigned blocks_for(std::int64_t n, std::int64_t each) {
  const std::int64_t wanted = (n + kThreads * each - 1) / (kThreads * each);
  return static_cast<unsigned>(std::min<std::int64_t>(wanted, 4096));
}

}  // namespace fsdp::cuda
