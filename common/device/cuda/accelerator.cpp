// By itself: it takes the place of device/no_accelerator.cpp in programs that are linked with CUDA.
#include "device/accelerator.h"

#include "device/cuda/rank_device.h"

#include <cstdlib>
#include <utility>

namespace fsdp {
namespace {

// Before main(), and so before anybody's first call of CUDA, which reads it: see driver_gate().
// What the user has set stays.
[[maybe_unused]] const int kLoadsKernels = setenv("CUDA_MODULE_LOADING", "EAGER", 0);

class Cuda final : public Accelerator {
 public:
  int count() override { return cuda::device_count(); }
  Memory memory_of(int index) override { return cuda::memory_of(index); }
  std::shared_ptr<RankDevice> open(int index) override { return cuda::open_device(index); }
  std::shared_ptr<Allocator> make_allocator(std::shared_ptr<RankDevice> device,
                                            std::shared_ptr<MemoryTracker> tracker,
                                            std::size_t segment_nbytes) override {
    if (segment_nbytes == 0) {
      return cuda::make_exact_allocator(std::move(device), std::move(tracker));
    }
    return cuda::make_caching_allocator(std::move(device), std::move(tracker), segment_nbytes);
  }
  std::shared_ptr<Allocator> make_pinned_allocator(
      std::shared_ptr<RankDevice> device, std::shared_ptr<MemoryTracker> tracker) override {
    return cuda::make_pinned_allocator(std::move(device), std::move(tracker));
  }
};

}  // namespace

Accelerator* accelerator() {
  static Cuda cuda;
  return &cuda;
}

}  // namespace fsdp
