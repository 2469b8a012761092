/// @file
/// @ingroup device
/// Storage: bytes that can be freed and allocated again while views of them stay valid.
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
/// Tensors hold a shared Storage and an offset, never a raw pointer. So a view stays valid through
/// any number of free/allocate rounds:
///
///     allocate()         free()          allocate()
///   -----------> [bytes] ------> [none] -----------> [new bytes]
///      views:   readable       shape only             readable
///
/// FSDP rests on this. The unsharded parameter and every view of it that autograd saved are made
/// once; each all-gather only refills the bytes below them.
///
/// `nbytes()` and `device()` never change. Only the owning rank's thread may use a Storage.
class Storage {
 public:
  /// Describes `nbytes` bytes on `device`. Allocates nothing yet; allocate() will take the bytes
  /// from the current Context.
  Storage(Device device, std::size_t nbytes, MemoryKind kind,
          std::shared_ptr<const Owner> owner = nullptr);
  ~Storage();

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Allocates the bytes; a no-op if they are allocated. The contents are undefined: checked builds
  /// fill them with NaN, so that a forgotten copy shows.
  /// @throws Error on a meta device.
  void allocate();

  /// Frees the bytes; a no-op if they are freed. The trace records this and allocate(), if the
  /// storage has an owner with a unit.
  /// @param reason what frees it ("reshard after forward"), for the error of a later read. Without
  ///        one, that error names the last event of the trace, if it records.
  /// @throws StorageError while a Lease lives, i.e. a collective is still in flight.
  void free(std::string_view reason = {});

  /// The first byte, 64-byte aligned. Null on the fake device only.
  /// @throws StorageError if it is not allocated (read after reshard). Names the owner and what
  ///         freed it.
  std::byte* data();

  bool is_allocated() const { return allocated_; }
  std::size_t nbytes() const { return nbytes_; }
  Device device() const { return device_; }
  MemoryKind kind() const { return kind_; }
  const Owner* owner() const { return owner_.get(); }

  /// From now on the bytes count as `kind` (a reduce-scatter's output becomes a sharded gradient).
  void recategorize(MemoryKind kind);

  /// Exchanges the bytes, allocated or not, with those of `other`: O(1), nothing is copied. Each
  /// Storage keeps its kind and owner. The trace records nothing.
  /// @throws StorageError if sizes or devices differ, or a Lease lives on either.
  void swap_bytes(Storage& other);

  /// On a virtual clock: when the copy that fills the bytes has ended. A collective that uses them
  /// begins then or later; a kernel must not use them before.
  std::int64_t ready() const { return ready_; }
  void set_ready(std::int64_t time) { ready_ = time; }

  /// While a Lease lives, the bytes are being read or written, so free() throws. Move-only.
  class Lease {
   public:
    Lease() = default;
    /// @throws StorageError if the bytes are not allocated (shape-only devices have none).
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
  std::shared_ptr<Allocator> allocator_;  // of block_; keeps it valid after the Context's end
  Allocator::Block block_;
  bool allocated_ = false;
  std::int64_t ready_ = 0;
  int leases_ = 0;        // collectives in flight
  int times_freed_ = 0;   // named in the error of a read after free
  std::string freed_by_;  // what was running when the bytes were freed
};

}  // namespace fsdp
