/// @file
/// @ingroup estimate
/// The peak of a training on a CUDA device.
#pragma once

#include "config/config.h"

#include <cstdint>

namespace fsdp::estimate {

/// The peak of the rank that needs most, in bytes of its device. It is that of the device `fake`,
/// with sizes rounded up to 512 bytes as CUDA does, and with what kernels keep on a card in place
/// of the scratch that they keep on a CPU. It is the peak of a training of two steps or more, and
/// an upper bound for one of a single step.
/// @throws Error if the program was built without CUDA
std::int64_t device_bound_bytes(const config::TrainConfig& config);

}  // namespace fsdp::estimate
