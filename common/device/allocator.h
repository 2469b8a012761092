/// @file
/// @ingroup device
/// Allocators: they allocate a device's bytes and count them.
#pragma once

#include "base/types.h"
#include "device/memory_tracker.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fsdp {

/// Allocates blocks of one device for one rank and records them in the tracker. Not thread-safe:
/// only that rank's thread may use it.
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

  /// @throws Error if the limit of set_limit() would be exceeded, or the system has no memory.
  Block allocate(std::size_t nbytes, MemoryKind kind, std::shared_ptr<const Owner> owner);
  /// Frees a block that was allocated with `nbytes`.
  void release(const Block& block, std::size_t nbytes);

  /// The bytes that a request of `nbytes` occupies and counts as. The CPU does not round.
  virtual std::size_t round_up(std::size_t nbytes) const { return nbytes; }
  /// Limits the accounted total to `nbytes` (0 = no limit).
  void set_limit(std::size_t nbytes) { limit_ = nbytes; }
  /// How many requests exceeded the limit.
  std::int64_t refusals() const { return refusals_; }
  /// The most bytes that were allocated at one time, by the allocator's own count.
  std::size_t most_in_use() const { return most_held_; }
  /// Bytes reserved so far, in use or kept for reuse. Reserved − in use is the fragmentation.
  virtual std::size_t reserved() const { return most_held_; }
  /// How often cached blocks were returned to the device because a request did not fit.
  virtual std::int64_t retries() const { return 0; }
  MemoryTracker& tracker() { return *tracker_; }

 protected:
  virtual std::byte* take(std::size_t nbytes) = 0;
  virtual void give_back(std::byte* bytes, std::size_t nbytes) = 0;
  /// Makes fresh bytes NaN in every floating format, and -1 in every integer: all bits are set.
  virtual void fill_fresh(std::byte* bytes, std::size_t nbytes);
  std::size_t limit() const { return limit_; }

 private:
  std::shared_ptr<MemoryTracker> tracker_;
  std::size_t limit_ = 0;
  std::int64_t refusals_ = 0;
  std::size_t held_ = 0;
  std::size_t most_held_ = 0;
};

/// CPU memory, 64-byte aligned, kept for reuse. Every training step requests the same blocks, and
/// memory returned to the system costs one page fault per 4 KiB when it is used again. First fit
/// from the lowest address, with coalescing, inside large reserved regions. Untouched pages cost
/// nothing, so resident memory follows the high-water mark. Under a sanitizer every block is its
/// own heap block, so that overruns and leaks are found.
std::shared_ptr<Allocator> make_cpu_allocator(std::shared_ptr<MemoryTracker> tracker);

/// The two ways of make_cpu_allocator(), in any build: regions, or one heap block each.
/// `region_nbytes` is address space, reserved when first needed; a larger request gets a larger
/// region. No block spans two regions, so one region for everything wastes the least. The default
/// is 64 GiB, or a sixteenth of the process's address space where that is limited.
std::shared_ptr<Allocator> make_region_allocator(std::shared_ptr<MemoryTracker> tracker,
                                                 std::size_t region_nbytes = 0);
std::shared_ptr<Allocator> make_heap_allocator(std::shared_ptr<MemoryTracker> tracker);

/// Counts bytes that do not exist (device `fake`). Sizes are rounded up to `granularity`
/// (allocators of accelerators round up to 512).
std::shared_ptr<Allocator> make_fake_allocator(std::shared_ptr<MemoryTracker> tracker,
                                               std::size_t granularity = 1);

/// True in programs that fill fresh bytes with NaN: the tests, which link their own definition.
bool fills_fresh_memory();

}  // namespace fsdp
