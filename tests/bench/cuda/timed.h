/// @file
/// How long the card takes for a call.
#pragma once

#include "tensor/tensor.h"

#include <functional>

namespace fsdp::bench {

/// Seconds of one call on the rank's device, which gets several before the host waits. The first
/// calls, which choose algorithms and reserve memory, do not count. 0 on the fake device.
double device_seconds(const std::function<void()>& call);

/// Copies to the rank's device what `fill` writes into a tensor of the CPU. Not on the fake one.
void fill_on_device(const Tensor& tensor, const std::function<void(const Tensor& on_cpu)>& fill);

/// Ordinary numbers within [-1, 1] on the rank's device: with constant ones a card needs less
/// power, and is faster.
Tensor device_values(const Shape& shape, DType dtype = DType::float32);

}  // namespace fsdp::bench
