/// @file
/// @ingroup tensor
/// ops::rms_norm and its backward on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdp::cuda {

/// x, out (rows, width); weight (width); rstd (rows).
template <class T>
void rms_norm(Stream stream, T* out, float* rstd, const T* x, const T* weight, std::int64_t rows,
              std::int64_t width, double eps);

/// sum = x + y and its norm; sum may be x or y.
template <class T>
void add_rms_norm(Stream stream, T* out, float* rstd, T* sum, const T* x, const T* y,
                  const T* weight, std::int64_t rows, std::int64_t width, double eps);

/// dx may be null (not needed), likewise dweight; dx may be dout. `add_dx` and `add_dweight` add
/// to what they hold. Each column of dweight is summed in an order that the shape, the size of the
/// scratch, and whether dx is needed decide.
/// @param scratch  of the device, at a multiple of 16 bytes: 2048 times the width, to sum up to 512
///                 parts of the rows beside each other while dx is computed. With less there are
///                 fewer parts; without any, x and dout are read once more
template <class T>
void rms_norm_backward(Stream stream, T* dx, bool add_dx, T* dweight, bool add_dweight,
                       const T* dout, const T* x, const T* weight, const float* rstd,
                       std::int64_t rows, std::int64_t width, std::span<std::byte> scratch = {});

}  // namespace fsdp::cuda
