/// @file
/// @ingroup comm
/// How ranks that are processes exchange what is in the memory of CUDA devices: by NCCL.
///
/// The control plane is the same as for bytes of the host. When a collective has been agreed on,
/// and its turn has come, each process gives its own part to the communication stream of its
/// device. From then on it is done, as far as the host is concerned: what waits for its end is the
/// rank's compute stream, from Work::wait() on. Kernels of NCCL wait for each other across devices;
/// since all processes start collectives in the order of the agreements, none waits in a circle.
#pragma once

#include "comm/process_group.h"

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace fsdp::processes {

/// What the first rank of a group makes, and the others must know to connect. The Job carries it
/// there.
using DeviceGroupId = std::array<std::byte, 128>;

/// One group of ranks, as this process has it. One thread at a time may call, whichever it is. No
/// call blocks: a process that waited here for another could not notice that it is gone. Only the
/// destructor does, until what was started has ended.
class DeviceGroup {
 public:
  DeviceGroup() = default;
  virtual ~DeviceGroup() = default;
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  /// False while the group connects, or what was started is on its way to the stream.
  /// @throws Error if something has failed, then and at every later call
  virtual bool is_ready() = 0;
  /// Starts a collective, after what makes its operands. The group must be ready.
  /// @throws Error
  virtual void start(const Collective& call) = 0;
  /// All that was started, once the group is ready again.
  virtual std::unique_ptr<StreamEvent> started() = 0;
};

/// Makes the groups of a program.
class DevicePlane {
 public:
  DevicePlane() = default;
  virtual ~DevicePlane() = default;
  DevicePlane(const DevicePlane&) = delete;
  DevicePlane& operator=(const DevicePlane&) = delete;

  /// @throws Error
  virtual DeviceGroupId make_id() = 0;
  /// Begins to connect rank `rank` of `size`, which computes on `device`.
  /// @throws Error
  virtual std::unique_ptr<DeviceGroup> connect(const DeviceGroupId& id, int rank, int size,
                                               std::shared_ptr<RankDevice> device) = 0;
  /// Ends all that these groups have started, also if a process is gone, and may block until the
  /// processes of this machine have done the same. After it the groups can only be destroyed.
  virtual void give_up(const std::vector<DeviceGroup*>& groups) noexcept = 0;
};

/// Null if this program was linked without CUDA.
std::unique_ptr<DevicePlane> make_device_plane();

}  // namespace fsdp::processes
