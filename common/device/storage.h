/// @file
/// @ingroup device
/// Storage: bytes that can go away and come back under living views.
#pragma once

#include "base/types.h"
#include "device/allocator.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace fsdp {

/// A block of bytes on one device.
///
/// Tensors hold a shared Storage and an offset, never a raw pointer. So a view made once survives
/// any number of free/allocate rounds:
///
///     allocate()         free()          allocate()
///   -----------> [bytes] ------> [none] -----------> [new bytes]
///      views:   readable       shape only             readable
///
/// FSDP rests on this: the unsharded parameter, and every view that autograd saved of it, is built
/// once; each all-gather only refills the bytes below.
///
/// `nbytes()` and `device()` never change. Only the owning rank's thread may call.
class Storage {
 public:
  /// Describes `nbytes` bytes on `device`, allocated from the current Context when the time comes.
  /// Allocates nothing yet.
  Storage(Device device, std::size_t nbytes, MemoryKind kind,
          std::shared_ptr<const Owner> owner = nullptr);
  ~Storage();

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Gets the memory; a no-op when it is already there. The contents are undefined: checked builds
  /// fill them with NaN so that a forgotten copy shows up.
  /// @throws Error on a meta device.
  void allocate();

  /// Gives the memory back; a no-op when it is already gone. The trace records it (when the
  /// storage has an owner with a unit), as it does allocate().
  /// @param reason what frees it ("reshard after forward"), for the error of a read that comes too
  ///        late; without one, that error names the last event of the trace, if it records.
  /// @throws StorageError while a Lease lives, i.e. a collective is still in flight.
  void free(std::string_view reason = {});

  /// The first byte, 64-byte aligned. Null on the fake device only.
  /// @throws StorageError when the memory is not there (read after reshard), naming the owner and
  ///         what freed it.
  std::byte* data();

  bool is_allocated() const { return allocated_; }
  std::size_t nbytes() const { return nbytes_; }
  Device device() const { return device_; }
  MemoryKind kind() const { return kind_; }
  const Owner* owner() const { return owner_.get(); }

  /// From now on the bytes count as `kind` (a reduce-scatter's output becomes a sharded gradient).
  void recategorise(MemoryKind kind);

  /// Hands the bytes, allocated or not, to `other` and takes other's: O(1), nothing is copied.
  /// Kinds and owners stay with the Storage they were given to; the trace is told nothing.
  /// @throws StorageError if sizes or devices differ, or a Lease lives on either.
  void swap_bytes(Storage& other);

  /// Promises that somebody reads or writes the bytes until it is destroyed. Move-only.
  class Lease {
   public:
    Lease() = default;
    /// @throws StorageError when the bytes are not there (shape-only devices have none to lend).
    explicit Lease(std::shared_ptr<Storage> storage);
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();

   private:
    void end();
    std::shared_ptr<Storage> storage_;
  };

 private:
  void release() noexcept;
  std::string description() const;
  [[noreturn]] void fail_not_there() const;

  Device device_;
  std::size_t nbytes_;
  MemoryKind kind_;
  std::shared_ptr<const Owner> owner_;
  std::shared_ptr<Allocator> allocator_;  // of block_; keeps it valid after the Context has gone
  Allocator::Block block_;
  bool allocated_ = false;
  int leases_ = 0;        // collectives in flight
  int times_freed_ = 0;   // named in the error of a read after free
  std::string freed_by_;  // what was going on when the bytes went away
};

}  // namespace fsdp
