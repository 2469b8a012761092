/// @file
/// @ingroup tensor
/// The check of a token or a target, for .cu files.
#pragma once

#include "tensor/cuda/index_error.h"

#include <cuda_runtime.h>

namespace fsdp::cuda {

/// Whether `index` lies in [0, size). If not and `reports`, notes it in *error.
__device__ inline bool is_in_range(std::int32_t index, std::int64_t position, std::int64_t size,
                                   bool reports, IndexError* error) {
  if (index >= 0 && index < size) return true;
  if (reports) {
    atomicMin(error, static_cast<IndexError>(position) << 32U | static_cast<std::uint32_t>(index));
  }
  return false;
}

}  // namespace fsdp::cuda
