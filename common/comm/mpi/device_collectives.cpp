#include "comm/mpi/device_collectives.h"

#include "base/check.h"

#include <exception>
#include <utility>

namespace fsdp::mpi {
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

std::unique_ptr<StreamEvent> DeviceCollectives::progress(Job& job, const Collective& call,
                                                         int number, int rank,
                                                         const std::vector<int>& members) {
  if (!failure_.empty()) fail("{}", failure_);
  try {
    Group& group = groups_[number];
    if (!connect(job, group, call, rank, members) || !group.connected->is_ready()) return nullptr;
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

bool DeviceCollectives::connect(Job& job, Group& group, const Collective& call, int rank,
                                const std::vector<int>& members) {
  if (group.connected) return true;
  const auto size = static_cast<int>(members.size());
  if (!group.id_transfer) {
    if (rank == 0) group.id = plane_->make_id();
    const Collective broadcast = broadcast_of(group.id);
    group.id_transfer = std::make_unique<Transfer>(
        broadcast, make_plan(broadcast, rank, size, nullptr), members, no_sums_);
  }
  group.id_transfer->progress(job);
  if (!group.id_transfer->is_done()) return false;
  group.connected = plane_->connect(group.id, rank, size, call.on_device->device);
  return true;
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
  for (auto& [number, group] : groups_) {
    if (group.connected) group.connected->give_up();
  }
}

}  // namespace fsdp::mpi
