/// @file
/// @ingroup tensor
/// ops::swiglu and its backward on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

template <class T>
void swiglu(Stream stream, T* out, const T* gate, const T* up, std::int64_t n);

/// dgate may be gate, and dup may be up.
template <class T>
void swiglu_backward(Stream stream, T* dgate, T* dup, const T* dout, const T* gate, const T* up,
                     std::int64_t n);

}  // namespace fsdp::cuda
