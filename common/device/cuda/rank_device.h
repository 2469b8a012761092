/// @file
/// @ingroup device
/// RankDevice over CUDA's runtime.
#pragma once

#include "device/accelerator.h"

#include <memory>

namespace fsdp::cuda {

/// Every device memory of CUDA begins at, and is counted in, multiples of this.
inline constexpr std::size_t kGranularity = 512;

/// Of this machine. @throws Error that says why, if there is none
int device_count();
Accelerator::Memory memory_of(int index);
/// @throws Error if there is no such device.
std::shared_ptr<RankDevice> open_device(int index);

std::shared_ptr<Allocator> make_caching_allocator(std::shared_ptr<RankDevice> device,
                                                  std::shared_ptr<MemoryTracker> tracker,
                                                  std::size_t segment_nbytes);
/// Every block by cudaMallocAsync and cudaFreeAsync on the compute stream.
std::shared_ptr<Allocator> make_exact_allocator(std::shared_ptr<RankDevice> device,
                                                std::shared_ptr<MemoryTracker> tracker);
std::shared_ptr<Allocator> make_pinned_allocator(std::shared_ptr<RankDevice> device,
                                                 std::shared_ptr<MemoryTracker> tracker);

}  // namespace fsdp::cuda
