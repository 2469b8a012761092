/// @file
/// @ingroup comm
/// The collectives of one process on its device, in the order in which they were agreed on.
#pragma once

#include "comm/processes/device_plane.h"
#include "comm/processes/transfer.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fsdp::processes {

/// Its destructor waits for what was started.
class DeviceCollectives {
 public:
  DeviceCollectives() = default;
  ~DeviceCollectives();
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  /// Does what can be done now for `call` of group `number`, whose ranks of the job are `members`
  /// and whose own group rank is `rank`. The same call again and again, until it is started.
  /// @returns what marks its end; null: not started yet
  /// @throws Error if the devices have failed, then and at every later call
  std::unique_ptr<StreamEvent> progress(Job& job, const Collective& call, int number, int rank,
                                        const std::vector<int>& members);
  /// Looks whether something has failed, now and then.
  /// @throws Error the first time that something has
  void check();
  /// Ends all that was started, soon. What is called next throws `reason`.
  void give_up(const std::string& reason) noexcept;

 private:
  struct Group {
    DeviceGroupId id{};
    std::unique_ptr<Transfer> id_transfer;  // sends it, or receives it
    std::unique_ptr<DeviceGroup> connected;
  };

  bool has_id(Job& job, Group& group, int rank, const std::vector<int>& members);

  std::unique_ptr<DevicePlane> plane_ = make_device_plane();
  std::map<int, Group> groups_;
  SumBuffers no_sums_;
  bool has_started_ = false;  // the call that progress() is given
  std::string failure_;
  std::thread ending_;  // gives up: it may take until other processes do
  std::chrono::steady_clock::time_point checked_{};
};

}  // namespace fsdp::processes
