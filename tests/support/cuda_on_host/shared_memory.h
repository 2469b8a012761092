/// @file
/// How much shared memory a block may have on every card that the kernels are for.
#pragma once

#include <cstddef>

namespace cuda_on_host {

inline constexpr std::size_t kSharedMemory = 48 * 1024;
/// After cudaFuncSetAttribute, on the device for which it was called. An H100 has 227 KiB, the
/// cards of 8.6, 8.9 and 12.0 have these.
inline constexpr std::size_t kMostSharedMemory = 99 * 1024;

}  // namespace cuda_on_host

/// The array that a launch's dynamicSmemBytes is about.
extern thread_local __attribute__((
    aligned(1024))) unsigned char dynamic_shared_memory[cuda_on_host::kMostSharedMemory];
