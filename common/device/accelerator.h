/// @file
/// @ingroup device
/// What the library needs of an accelerator: memory, streams and copies.
///
/// A program has one if it is linked with the library that defines accelerator(). All programs
/// consist of the same objects otherwise: nothing is compiled differently.
#pragma once

#include "device/allocator.h"
#include "device/cuda/stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp {

/// A point in the work of a stream: all that the stream was given before it.
class StreamEvent {
 public:
  StreamEvent() = default;
  virtual ~StreamEvent() = default;
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
};

/// What kernels keep with a device: handles, scratch, and what they could not throw.
class KernelState {
 public:
  KernelState() = default;
  virtual ~KernelState() = default;
  KernelState(const KernelState&) = delete;
  KernelState& operator=(const KernelState&) = delete;
  /// Before the host waits for the compute stream: what after_wait() reads is copied to the host.
  virtual void before_wait() = 0;
  /// @throws Error that a kernel has noted
  virtual void after_wait() = 0;
};

/// One device of an accelerator, as one rank uses it. Only that rank's thread may call it. Once the
/// streams are made, other threads may too, if they call activate() first. Collectives do.
///
/// The rank's kernels run on the compute stream, in the order of the program. Memory is allocated
/// and freed in that order too, so a block may be used again at once. Another stream may touch
/// bytes only between two edges: it waits for the compute stream before, and the compute stream
/// waits for it before the bytes are used or freed.
class RankDevice : public std::enable_shared_from_this<RankDevice> {
 public:
  RankDevice() = default;
  virtual ~RankDevice() = default;
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  virtual int index() const = 0;
  /// Makes it the device of the calling thread, for calls of CUDA that depend on one.
  virtual void activate() = 0;

  virtual cuda::Stream compute() = 0;
  virtual cuda::Stream copies() = 0;         ///< copies between device and host; made at first use
  virtual cuda::Stream communication() = 0;  ///< collectives; made at first use

  virtual std::vector<cuda::Stream> streams() = 0;  ///< those that were made so far

  /// All work that `stream` was given so far.
  virtual std::unique_ptr<StreamEvent> record(cuda::Stream stream) = 0;
  /// What `stream` is given from now on begins after `event`. The host runs on.
  virtual void make_wait(cuda::Stream stream, const StreamEvent& event) = 0;
  /// The host waits for `event`.
  virtual void wait_on_host(const StreamEvent& event) = 0;

  virtual bool has_ended(const StreamEvent& event) = 0;

  /// Sets `nbytes` bytes of the device to `value`, on the compute stream.
  virtual void fill(std::byte* to, int value, std::size_t nbytes) = 0;
  /// Copies on `stream`. What is memory of the host must be pinned, and stay until then.
  virtual void copy(cuda::Stream stream, std::byte* to, const std::byte* from,
                    std::size_t nbytes) = 0;
  /// Copies bytes of the device to any memory of the host, after all work of the compute stream.
  /// The host waits.
  virtual void read(void* to, const std::byte* from, std::size_t nbytes) = 0;
  /// The reverse of read(). The host waits.
  virtual void write(std::byte* to, const void* from, std::size_t nbytes) = 0;
  /// The host waits until it may touch pinned memory: for all copies on copies().
  virtual void finish_copies() = 0;
  /// The host waits for the compute stream. @throws Error that a kernel has noted, here and in
  /// read() and write(): a kernel cannot throw.
  virtual void synchronize() = 0;
  /// Called around each such wait; null: none.
  virtual void set_kernel_state(KernelState* state) = 0;
};

/// Opens the devices of a machine.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  /// How many devices the machine has. @throws Error that says why there is none
  virtual int count() = 0;
  /// The memory of a device that nothing uses, and all that it has, in bytes.
  struct Memory {
    std::int64_t free = 0;
    std::int64_t total = 0;
  };
  virtual Memory memory_of(int index) = 0;
  /// @throws Error if the machine has no device of this index.
  virtual std::shared_ptr<RankDevice> open(int index) = 0;
  /// Device memory that is kept for reuse: blocks are cut from segments. `segment_nbytes` is the
  /// size of one; a request of more than half of it is served from segments that are larger. 0:
  /// every block is an allocation of its own, so that an overrun is found.
  virtual std::shared_ptr<Allocator> make_allocator(std::shared_ptr<RankDevice> device,
                                                    std::shared_ptr<MemoryTracker> tracker,
                                                    std::size_t segment_nbytes) = 0;
  /// Pinned memory of the host, kept for reuse. A freed block is used again after all work that
  /// `device` was given before it was freed.
  virtual std::shared_ptr<Allocator> make_pinned_allocator(
      std::shared_ptr<RankDevice> device, std::shared_ptr<MemoryTracker> tracker) = 0;
};

/// The program's accelerator, or null if it has none.
Accelerator* accelerator();

}  // namespace fsdp
