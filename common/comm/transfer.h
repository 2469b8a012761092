/// @file
/// @ingroup comm
/// The data plane of the thread backend, as Rendezvous sees it.
#pragma once

#include <cstdint>

namespace fsdp {
class StreamEvent;
}

namespace fsdp::threads {

/// The data of one matched collective, as a list of chunks. Any thread may run any chunk, in any
/// order, with the same result.
///
///     HostTransfer    bytes of the host: its chunks copy and add (comm/thread_transfer.h)
///     DevicePlane     memory of devices: its chunk gives the work to streams (comm/device_plane.h)
class Transfer {
 public:
  Transfer() = default;
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  virtual std::int64_t chunks() const = 0;
  /// True if the collective is not worth waking another thread for. Then it is one chunk.
  virtual bool is_small() const = 0;
  virtual void run(std::int64_t chunk) = 0;
  /// After the last chunk: what the next use of the operands of group rank `member` must wait for,
  /// if that is work of a device. Null: nothing, the data has moved.
  virtual const StreamEvent* end_event(int member) const {
    static_cast<void>(member);
    return nullptr;
  }
};

}  // namespace fsdp::threads
