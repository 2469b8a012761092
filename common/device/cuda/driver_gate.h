/// @file
/// @ingroup device
/// Keeps calls that CUDA's driver may hold up apart from collectives that are being launched.
#pragma once

#include <shared_mutex>

namespace fsdp::cuda {

/// The collective of several devices of one process is launched on one after the other, and the
/// kernel on the first of them waits for that on the last. cudaMalloc, cudaFree and their like may
/// wait for that kernel, with a lock of the driver that the launches still to come need: then both
/// wait forever. So a launch holds this gate shared, and such a call holds it alone. There is one
/// in a process, as there is one such lock.
///
/// CUDA would do the same where a kernel is launched for the first time, and loads it: so kernels
/// are loaded when CUDA starts (CUDA_MODULE_LOADING).
std::shared_mutex& driver_gate();

}  // namespace fsdp::cuda
