/// @file
/// Launching and checking, for files that compile both with nvcc and with the stand-in.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

/// Throws if a call of the CUDA runtime returned an error.
inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <class... Expected, class... Actual>
void launch(dim3 grid, dim3 block, std::size_t shared_nbytes, cudaStream_t stream,
            void (*kernel)(Expected...), Actual... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_nbytes;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(arguments)...));
}
