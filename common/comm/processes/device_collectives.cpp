#include "comm/processes/device_collectives.h"

#include "base/check.h"

#include <exception>
#include <system_error>
#include <utility>

namespace fsdp::processes {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{10};

/// The broadcast of an id, as bytes of the host.
Collective broadcast_of(DeviceGroupId& id) {
  Collective call{.op = CollectiveOp::broadcast, .in = id.data(), .out = id.data()};
  call.dtype = DType::int32;
  call.numel = static_cast<std::int64_t>(id.size() / size_of(call.dtype));
  call.root = 0;
  return call;
}

}  // namespace

DeviceCollectives::~DeviceCollectives() {
  if (ending_.joinable()) ending_.join();
}

std::unique_ptr<StreamEvent> DeviceCollectives::progress(Job& job, const Collective& call,
                                                         int number, int rank,
                                                         const std::vector<int>& members) {
  Group& group = groups_[number];
  // Even after a failure: a message that another rank waits for must not be left for a later world.
  if (!has_id(job, group, rank, members)) return nullptr;
  if (!failure_.empty()) fail("{}", failure_);
  try {
    if (!group.connected) {
      FSDP_CHECK(group.id != DeviceGroupId{}, "rank {} could not make an id for NCCL",
                 members.front());
      group.connected =
          plane_->connect(group.id, rank, static_cast<int>(members.size()), call.on_device->device);
    }
    if (!group.connected->is_ready()) return nullptr;
    if (!std::exchange(has_started_, true)) {
      group.connected->start(call);
      if (!group.connected->is_ready()) return nullptr;
    }
    has_started_ = false;
    return group.connected->started();
  } catch (const std::exception& error) {
    give_up(error.what());
    throw;
  }
}

// All zero if it cannot be made.
bool DeviceCollectives::has_id(Job& job, Group& group, int rank, const std::vector<int>& members) {
  if (!group.id_transfer) {
    try {
      if (rank == 0 && failure_.empty()) group.id = plane_->make_id();
    } catch (const std::exception& error) {
      give_up(error.what());
    }
    const Collective broadcast = broadcast_of(group.id);
    group.id_transfer = std::make_unique<Transfer>(
        broadcast, make_plan(broadcast, rank, static_cast<int>(members.size()), nullptr), members,
        no_sums_);
  }
  group.id_transfer->progress(job);
  return group.id_transfer->is_done();
}

void DeviceCollectives::check() {
  const auto now = std::chrono::steady_clock::now();
  if (!failure_.empty() || now < checked_ + kCheckInterval) return;
  checked_ = now;
  try {
    for (auto& [number, group] : groups_) {
      if (group.connected) group.connected->is_ready();
    }
  } catch (const std::exception& error) {
    give_up(error.what());
    throw;
  }
}

void DeviceCollectives::give_up(const std::string& reason) noexcept {
  if (!failure_.empty()) return;
  failure_ = reason;
  std::vector<DeviceGroup*> connected;
  for (auto& [number, group] : groups_) {
    if (group.connected) connected.push_back(group.connected.get());
  }
  if (connected.empty()) return;
  // Not here: the other processes must hear of the failure, and give up too.
  try {
    ending_ = std::thread([this, connected] { plane_->give_up(connected); });
  } catch (const std::system_error&) {
    plane_->give_up(connected);
  }
}

}  // namespace fsdp::processes
