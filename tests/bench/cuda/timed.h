/// @file
/// How long the card takes for a call.
#pragma once

#include "tensor/tensor.h"

#include <functional>

namespace fsdp::bench {

/// Seconds of one call on the rank's device, which gets several before the host waits. The first
/// calls, which choose algorithms and reserve memory, do not count.
double device_seconds(const std::function<void()>& call);

/// Ordinary numbers within [-1, 1] on the rank's device: with constant ones a card needs less
/// power, and is faster.
Tensor device_values(const Shape& shape, DType dtype = DType::float32);

}  // namespace fsdp::bench
