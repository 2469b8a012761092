/// @file
/// How much shared memory a block may have: an H100's.
#pragma once

#include <cstddef>

namespace cuda_on_host {

inline constexpr std::size_t kSharedMemory = 48 * 1024;
/// After cudaFuncSetAttribute.
inline constexpr std::size_t kMostSharedMemory = 227 * 1024;

}  // namespace cuda_on_host

/// The array that a launch's dynamicSmemBytes is about.
extern thread_local __attribute__((
    aligned(1024))) unsigned char dynamic_shared_memory[cuda_on_host::kMostSharedMemory];
