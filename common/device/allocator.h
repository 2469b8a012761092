/// @file
/// @ingroup device
/// Allocators: where a device's bytes come from, with the count of them.
#pragma once

#include "base/types.h"
#include "device/memory_tracker.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fsdp {

/// Hands out blocks of one device to one rank and tells the tracker. Not thread-safe: a rank's
/// allocator is used by that rank's thread only.
class Allocator {
 public:
  struct Block {
    std::byte* bytes = nullptr;  ///< null on the fake device, and for zero bytes
    MemoryTracker::BlockId id = -1;
  };

  explicit Allocator(std::shared_ptr<MemoryTracker> tracker) : tracker_(std::move(tracker)) {}
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// @throws Error when a limit set by set_limit() would be exceeded, or the system has no more.
  Block allocate(std::size_t nbytes, MemoryKind kind, std::shared_ptr<const Owner> owner);
  /// Takes back a block that was asked for with `nbytes`.
  void release(const Block& block, std::size_t nbytes);

  /// Bytes a request of `nbytes` occupies and is counted as: CUDA rounds up to 512, the CPU does
  /// not.
  virtual std::size_t round_up(std::size_t nbytes) const { return nbytes; }
  /// Refuses to let the accounted total exceed `nbytes` (0 = no limit).
  void set_limit(std::size_t nbytes) { limit_ = nbytes; }
  /// How many requests the limit has refused.
  std::int64_t refusals() const { return refusals_; }
  /// Bytes set aside so far, in use or kept for later; reserved − in use is the fragmentation.
  virtual std::size_t reserved() const { return most_held_; }
  MemoryTracker& tracker() { return *tracker_; }

 protected:
  virtual std::byte* take(std::size_t nbytes) = 0;
  virtual void give_back(std::byte* bytes, std::size_t nbytes) = 0;

 private:
  std::shared_ptr<MemoryTracker> tracker_;
  std::size_t limit_ = 0;
  std::int64_t refusals_ = 0;
  std::size_t held_ = 0;
  std::size_t most_held_ = 0;
};

/// CPU memory, 64-byte aligned, kept for the next step: a training step asks for the same blocks
/// again and again, and memory returned to the system costs a page fault per 4 KiB when it comes
/// back. First fit from the lowest address with coalescing, inside large reserved regions whose
/// untouched pages cost nothing, so resident memory follows the high-water mark. Under a sanitizer
/// every block is its own heap block, so that overruns and leaks are found.
std::shared_ptr<Allocator> make_cpu_allocator(std::shared_ptr<MemoryTracker> tracker);

/// The two ways of make_cpu_allocator(), whatever the build: regions, or a heap block each.
/// `region_nbytes` is address space, reserved when first needed; a larger request gets a larger
/// one. Blocks never straddle regions, so one region that holds everything wastes the least: by
/// default 64 GiB, or a sixteenth of the process's address space where that is limited.
std::shared_ptr<Allocator> make_region_allocator(std::shared_ptr<MemoryTracker> tracker,
                                                 std::size_t region_nbytes = 0);
std::shared_ptr<Allocator> make_heap_allocator(std::shared_ptr<MemoryTracker> tracker);

/// Counts bytes that do not exist (device `fake`). `granularity` is what sizes are rounded up to
/// (512 models CUDA).
std::shared_ptr<Allocator> make_fake_allocator(std::shared_ptr<MemoryTracker> tracker,
                                               std::size_t granularity = 1);

/// True in programs that fill fresh bytes with NaN: the tests, and every checked build.
bool fills_fresh_memory();

}  // namespace fsdp
