/// @file
/// Times of kernels, and tensors to run them on.
#pragma once

#include "tensor/tensor.h"

#include <functional>
#include <vector>

namespace fsdp::bench {

/// Smallest time of one call, in seconds: the machine may be busy with other things. Repeats the
/// call for `budget` seconds, and at least four times.
double best_time(const std::function<void()>& call, double budget = 1.5);

/// The middle one, or the upper of the two in the middle; there is at least one.
double median(std::vector<double> values);

/// A float32 tensor of ordinary numbers within [-scale, scale].
Tensor values(const Shape& shape, double scale = 1);

}  // namespace fsdp::bench
