/// @file
/// @ingroup device
/// Keeps calls that CUDA's driver may hold up apart from collectives that are being launched.
#pragma once

#include <shared_mutex>

namespace fsdp::cuda {

/// The collective of several devices of one process is launched on one after the other, and the
/// kernel on the first of them waits for that on the last. A call that asks the driver for memory,
/// or loads kernels, may wait for that kernel, with a lock of the driver that the launches still to
/// come need: then both wait forever. So a launch holds this gate shared, and such a call holds it
/// alone. There is one in a process, as there is one such lock. A thread that holds the gate must
/// not take it again.
///
/// These calls hold it alone:
///
///     memory          cudaMalloc, cudaMallocHost, cudaFree, cudaFreeHost; cudaMallocAsync, whose
///                     pool may grow
///     peers           cudaDeviceEnablePeerAccess, cudaMemPoolSetAccess: both map memory
///     a device        the first cudaSetDevice, which loads all kernels
///     cuBLASLt        cublasLtCreate, cublasLtDestroy, and the first product of a shape, whose
///                     kernel may not be loaded yet
///     communicators   ncclCommInitAll, ncclCommDestroy
///
/// ncclCommAbort does not: it ends a launch that has failed, and the thread that calls it may still
/// hold the gate for that launch. And process_plane.cpp calls NCCL without the gate, because a
/// process has one card there.
///
/// A synchronization that returns memory of cudaMallocAsync's pool would be such a call.
/// allocators.cpp sets the pool's threshold so that none does.
///
/// CUDA would do the same where a kernel is launched for the first time, and loads it: so kernels
/// are loaded when CUDA starts (CUDA_MODULE_LOADING).
std::shared_mutex& driver_gate();

}  // namespace fsdp::cuda
