/// @file
/// @ingroup tensor
/// The operations of reductions.cpp on CUDA memory, with the CPU's bits: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/write.h"

#include <cstdint>

namespace fsdp::cuda {

/// out (width) (+)= sum over rows of in (rows, width).
template <class T>
void sum_rows(Stream stream, T* out, const T* in, std::int64_t rows, std::int64_t width,
              ops::Write write);

/// *out = sum of the n elements of in.
template <class T>
void sum(Stream stream, float* out, const T* in, std::int64_t n);

}  // namespace fsdp::cuda
