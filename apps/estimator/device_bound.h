/// @file
/// @ingroup estimator
/// The peak of a training on a CUDA device.
#pragma once

#include "train/config.h"

#include <cstdint>

namespace fsdp::estimator {

/// The peak of the rank that needs most, in bytes of its device. It is that of the device `fake`,
/// with sizes rounded up to 512 bytes as CUDA does, and with what kernels keep on a card in place
/// of the scratch that they keep on a CPU. A training of one step has no other peak than a longer
/// one but for the optimizer's state: see estimate_run.h.
/// @throws Error if the program was built without CUDA
std::int64_t device_bound_bytes(const train::TrainConfig& config);

}  // namespace fsdp::estimator
