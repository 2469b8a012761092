#include "base/check.h"
#include "device/cuda/block_cache.h"
#include "device/cuda/driver_gate.h"
#include "device/cuda/keep_device.h"
#include "device/cuda/launch.h"
#include "device/cuda/rank_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

namespace fsdp::cuda {
namespace {

/// What the allocators of a device's memory share.
class DeviceAllocator : public Allocator {
 public:
  DeviceAllocator(std::shared_ptr<RankDevice> device, std::shared_ptr<MemoryTracker> tracker)
      : Allocator(std::move(tracker)), device_(std::move(device)) {}

 protected:
  void fill_fresh(std::byte* bytes, std::size_t nbytes) override {
    device_->fill(bytes, 0xFF, nbytes);
  }
  [[noreturn]] void fail_for_memory(std::size_t nbytes) {
    std::size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    fail(
        "out of memory: the device cuda:{} refuses {} more bytes ({} of its {} bytes are free; "
        "this "
        "rank uses {}: {}, and has reserved {}). Use a smaller batch or more ranks.",
        device_->index(), nbytes, free, total, tracker().current_total(),
        to_string(tracker().current()), reserved());
  }
  RankDevice& device() { return *device_; }

 private:
  std::shared_ptr<RankDevice> device_;  // must live until the last byte is freed
};

/// cudaMalloc waits for the device and takes long, so memory that was reserved is kept. Blocks are
/// used in the order of the compute stream: one that is freed can be taken at once, since whatever
/// still uses it was given to the stream before.
class CachingAllocator final : public DeviceAllocator {
 public:
  CachingAllocator(std::shared_ptr<RankDevice> device, std::shared_ptr<MemoryTracker> tracker,
                   std::size_t segment_nbytes)
      : DeviceAllocator(std::move(device), std::move(tracker)),
        segment_nbytes_(rounded_up(segment_nbytes)) {}
  ~CachingAllocator() override {
    try {
      const KeepDevice keep;
      give_unused_back();
    } catch (...) {  // an earlier call has reported what is wrong
    }
  }
  std::size_t round_up(std::size_t nbytes) const override { return rounded_up(nbytes); }
  std::size_t reserved() const override { return most_reserved_; }
  std::int64_t retries() const override { return retries_; }

 protected:
  std::byte* take(std::size_t nbytes) override {
    const auto pool =
        nbytes <= segment_nbytes_ / 2 ? BlockCache::Pool::small : BlockCache::Pool::large;
    auto address = cache_.take(pool, nbytes);
    if (!address) {
      reserve(pool, nbytes);
      address = cache_.take(pool, nbytes);
    }
    return reinterpret_cast<std::byte*>(*address);
  }
  void give_back(std::byte* bytes, std::size_t) override {
    cache_.give_back(reinterpret_cast<BlockCache::Address>(bytes));
  }

 private:
  static std::size_t rounded_up(std::size_t nbytes) {
    return (nbytes + kGranularity - 1) / kGranularity * kGranularity;
  }

  static constexpr std::size_t kLarge = 16;  // segments for large requests: how many times as large

  void reserve(BlockCache::Pool pool, std::size_t nbytes) {
    const std::size_t usual =
        pool == BlockCache::Pool::small ? segment_nbytes_ : kLarge * segment_nbytes_;
    const std::size_t least = (nbytes + segment_nbytes_ - 1) / segment_nbytes_ * segment_nbytes_;
    const std::size_t wanted = std::max(usual, least);
    if (add_segment(pool, wanted)) return;
    // What is cached in other sizes may make room. Then a segment for this request alone must do.
    ++retries_;
    give_unused_back();
    if (add_segment(pool, wanted) || add_segment(pool, least) || add_segment(pool, nbytes)) return;
    fail_for_memory(nbytes);
  }

  bool add_segment(BlockCache::Pool pool, std::size_t nbytes) {
    if (limit() != 0 && cache_.reserved() + nbytes > limit()) return false;
    void* bytes = nullptr;
    const std::unique_lock alone(driver_gate());
    const cudaError_t answer = cudaMalloc(&bytes, nbytes);
    if (answer == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // or the next call would report it again
      return false;
    }
    require(answer, "cudaMalloc");
    cache_.add(pool, {reinterpret_cast<BlockCache::Address>(bytes), nbytes});
    most_reserved_ = std::max(most_reserved_, cache_.reserved());
    return true;
  }

  void give_unused_back() {
    device().activate();
    device().synchronize();  // which may still use what the program has freed
    const std::unique_lock alone(driver_gate());
    for (const BlockCache::Segment& segment : cache_.remove_unused()) {
      require(cudaFree(reinterpret_cast<void*>(segment.begin)), "cudaFree");
    }
  }

  std::size_t segment_nbytes_;
  BlockCache cache_;
  std::size_t most_reserved_ = 0;
  std::int64_t retries_ = 0;
};

/// Each block is an allocation of its own, of just the bytes that were asked for. So an overrun by
/// one byte is found, and bytes are counted as on the CPU.
class ExactAllocator final : public DeviceAllocator {
 public:
  using DeviceAllocator::DeviceAllocator;

 protected:
  std::byte* take(std::size_t nbytes) override {
    void* bytes = nullptr;
    const std::unique_lock alone(driver_gate());
    const cudaError_t answer = cudaMallocAsync(&bytes, nbytes, device().compute());
    if (answer == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // or the next call would report it again
      fail_for_memory(nbytes);
    }
    require(answer, "cudaMallocAsync");
    return static_cast<std::byte*>(bytes);
  }
  void give_back(std::byte* bytes, std::size_t) override {
    // Storages free in destructors too. A failure is kept, and the next call reports it.
    try {
      cudaFreeAsync(bytes, device().compute());
    } catch (...) {  // only the stand-in throws
    }
  }
};

// Other devices may read what cudaMallocAsync gives: for that, access to a peer is not enough. By
// default, its pool returns unused memory to the driver at every synchronization, where nobody
// holds the gate. The threshold makes it keep everything.
void prepare_pool(int index) {
  const std::unique_lock alone(driver_gate());
  cudaMemPool_t pool = nullptr;
  require(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  require(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all),
          "cudaMemPoolSetAttribute");
  for (int other = 0; other < device_count(); ++other) {
    if (other == index) continue;
    int can = 0;
    require(cudaDeviceCanAccessPeer(&can, other, index), "cudaDeviceCanAccessPeer");
    if (can == 0) continue;
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = other;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    require(cudaMemPoolSetAccess(pool, &access, 1), "cudaMemPoolSetAccess");
  }
}

}  // namespace

std::shared_ptr<Allocator> make_caching_allocator(std::shared_ptr<RankDevice> device,
                                                  std::shared_ptr<MemoryTracker> tracker,
                                                  std::size_t segment_nbytes) {
  return std::make_shared<CachingAllocator>(std::move(device), std::move(tracker), segment_nbytes);
}

std::shared_ptr<Allocator> make_exact_allocator(std::shared_ptr<RankDevice> device,
                                                std::shared_ptr<MemoryTracker> tracker) {
  prepare_pool(device->index());
  return std::make_shared<ExactAllocator>(std::move(device), std::move(tracker));
}

}  // namespace fsdp::cuda
