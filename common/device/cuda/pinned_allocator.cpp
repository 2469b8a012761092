#include "base/check.h"
#include "device/cuda/driver_gate.h"
#include "device/cuda/keep_device.h"
#include "device/cuda/launch.h"
#include "device/cuda/rank_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

// What compilers call before host code writes, where something that looks for races is linked: the
// stand-in, or the thread sanitizer. Else null.
// NOLINTNEXTLINE(readability-identifier-naming): the name is theirs
extern "C" [[gnu::weak]] void __tsan_write_range(void* begin, unsigned long nbytes);

namespace fsdp::cuda {
namespace {

/// Memory of the host that the device can copy from and to while both go on. Pinning takes long, so
/// blocks are kept, whole.
///
/// The host frees a block when the program has no more use for it; copies that were started may
/// still need it. So it rests until all work that the streams had been given by then has ended.
class PinnedAllocator final : public Allocator {
 public:
  PinnedAllocator(std::shared_ptr<RankDevice> device, std::shared_ptr<MemoryTracker> tracker)
      : Allocator(std::move(tracker)), device_(std::move(device)) {}
  ~PinnedAllocator() override {
    try {
      const KeepDevice keep;
      device_->activate();
      for (const Resting& block : resting_) {
        for (const auto& event : block.events) device_->wait_on_host(*event);
      }
      const std::unique_lock alone(driver_gate());
      for (const auto& [bytes, size] : sizes_) cudaFreeHost(bytes);
    } catch (...) {  // an earlier call has reported what is wrong
    }
  }
  std::size_t reserved() const override { return reserved_; }

 protected:
  std::byte* take(std::size_t nbytes) override {
    collect();
    const auto fit = free_.lower_bound({nbytes, nullptr});
    if (fit != free_.end() && fit->first <= nbytes + nbytes / 4 + kPage) {
      const auto [size, bytes] = *fit;
      free_.erase(fit);
      // The host writes next, mostly in code that is compiled without such calls.
      if (__tsan_write_range != nullptr) __tsan_write_range(bytes, size);
      return bytes;
    }
    const std::size_t size = (nbytes + kPage - 1) / kPage * kPage;
    void* bytes = nullptr;
    const std::unique_lock alone(driver_gate());
    const cudaError_t answer = cudaMallocHost(&bytes, size);
    if (answer != cudaSuccess) cudaGetLastError();  // or the next call would report it again
    FSDP_CHECK(
        answer == cudaSuccess,
        "out of memory: the system refuses {} more bytes of pinned memory ({}; this rank has "
        "{}). Use a smaller model or more ranks, or raise the limit (ulimit -l).",
        size, cudaGetErrorString(answer), reserved_);
    sizes_.emplace(static_cast<std::byte*>(bytes), size);
    reserved_ += size;
    return static_cast<std::byte*>(bytes);
  }
  void give_back(std::byte* bytes, std::size_t) override {
    Resting block{bytes, {}};
    try {
      const KeepDevice keep;
      device_->activate();
      for (Stream stream : device_->streams()) {
        block.events.push_back(device_->record(stream));
      }
    } catch (...) {  // an earlier call has reported what is wrong: the block is not used again
      return;
    }
    resting_.push_back(std::move(block));
  }

 private:
  static constexpr std::size_t kPage = 4096;
  struct Resting {
    std::byte* bytes;
    std::vector<std::unique_ptr<StreamEvent>> events;
  };

  // Lets blocks be used again whose work has ended. Nothing waits.
  void collect() {
    for (auto block = resting_.begin(); block != resting_.end();) {
      const bool has_ended = std::ranges::all_of(
          block->events, [&](const auto& event) { return device_->has_ended(*event); });
      if (has_ended) free_.emplace(sizes_.at(block->bytes), block->bytes);
      block = has_ended ? resting_.erase(block) : std::next(block);
    }
  }

  std::shared_ptr<RankDevice> device_;
  std::unordered_map<std::byte*, std::size_t> sizes_;  // of all blocks
  std::set<std::pair<std::size_t, std::byte*>> free_;
  std::list<Resting> resting_;
  std::size_t reserved_ = 0;
};

}  // namespace

std::shared_ptr<Allocator> make_pinned_allocator(std::shared_ptr<RankDevice> device,
                                                 std::shared_ptr<MemoryTracker> tracker) {
  return std::make_shared<PinnedAllocator>(std::move(device), std::move(tracker));
}

}  // namespace fsdp::cuda
