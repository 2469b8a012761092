/// @file
/// @ingroup comm
/// The data plane of the thread backend for the memory of CUDA devices.
///
/// The control plane is the same as for bytes of the host: a collective begins when all ranks have
/// called it, and the calls match. Its data then moves on the **communication streams** of the
/// ranks, in three steps that events order. The host waits for none of them:
///
///     compute stream of each rank       … operands │                      │ next use of them …
///                                           ready ▼                       ▲ ended
///     communication streams                        │ copies, sums between │
///
/// `ready` is recorded when the rank calls. What waits for `ended` is the rank's compute stream,
/// from Work::wait() on. So memory may be freed in stream order after wait(), as always.
#pragma once

#include "comm/control_state.h"
#include "comm/transfer.h"

#include <memory>
#include <vector>

namespace fsdp {

/// How collectives move and add what is in the memory of devices.
///
///     canonical  by copies and one kernel, which adds in the order of tensor/tree_sum.h: the bits
///                of the CPU. Several ranks may share a device. Devices need access to each other's
///                memory, so ranks are threads.
///     nccl       by NCCL. Its order of addition is its own, so sums agree with the CPU's up to
///                rounding, and not to the bit. Every rank needs a device of its own. For ranks
///                that are processes, see comm/processes/device_plane.h.
enum class DeviceData { canonical, nccl };

namespace threads {

/// Moves the data of one world. Any thread may call.
class DevicePlane {
 public:
  DevicePlane() = default;
  virtual ~DevicePlane() = default;
  DevicePlane(const DevicePlane&) = delete;
  DevicePlane& operator=(const DevicePlane&) = delete;

  /// A collective of `group`, which lives as long as the world does. `calls`: the matching calls of
  /// all its ranks, by group rank. It is done when all of its work was given to streams.
  virtual std::unique_ptr<Transfer> make_transfer(const control::Group& group,
                                                  std::vector<Collective> calls) = 0;
  /// True if check() must be called every now and then, since data may fail to arrive.
  virtual bool needs_checks() const { return false; }
  /// Ends what is under way on the devices if part of it has failed.
  /// @throws Error with the reason, then and at every later call
  virtual void check() {}
};

/// Null if this program was linked without CUDA. @throws Error if `data` needs what it lacks
std::unique_ptr<DevicePlane> make_device_plane(DeviceData data);

}  // namespace threads
}  // namespace fsdp
