/// @file
/// @ingroup tensor
/// Operations with one number that lies on the device, so that the host need not wait for it:
/// float, BFloat16, Float16. The CPU's bits.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// Every element of out = *value, rounded to T.
template <class T>
void fill_with(Stream stream, T* out, const float* value, std::int64_t n);
/// out *= *factor · times / over, computed in double and rounded to float32 first.
template <class T>
void scale_by(Stream stream, T* out, const float* factor, double times, double over,
              std::int64_t n);

}  // namespace fsdp::cuda
