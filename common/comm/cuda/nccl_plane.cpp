#include "comm/cuda/nccl_plane.h"

#include "base/check.h"
#include "comm/cuda/nccl_communicators.h"
#include "comm/cuda/thread_device.h"
#include "device/cuda/driver_gate.h"
#include "device/cuda/keep_device.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

namespace fsdp::cuda {
namespace {

/// All collectives of a world start one after the other, in the same order on every device, and on
/// the one communication stream of each rank. Kernels of NCCL wait for each other across devices:
/// two devices that ran those of two groups in different orders could wait forever.
class NcclPlane final : public threads::DevicePlane {
 public:
  std::unique_ptr<threads::Transfer> make_transfer(const control::Group& group,
                                                   std::vector<Collective> calls) override;
  bool needs_checks() const override { return true; }
  void check() override {
    const std::lock_guard lock(mutex_);
    look_for_failures();
  }

  /// @returns for every rank, what marks the end of its part
  std::vector<std::unique_ptr<StreamEvent>> start(const control::Group& group,
                                                  const std::vector<Collective>& calls) {
    Communicators& communicators = communicators_of(group, calls);
    // Before the plane's own mutex: a thread that waits at the gate keeps nobody from check().
    const std::shared_lock launching(driver_gate());
    const std::lock_guard lock(mutex_);
    look_for_failures();
    for (const Collective& call : calls) {
      RankDevice& device = device_of(call);
      device.make_wait(device.communication(), *call.on_device->ready);
    }
    try {
      communicators.start(calls);
    } catch (const Error& error) {
      give_up(error.what());
      throw;
    }
    std::vector<std::unique_ptr<StreamEvent>> ends;
    for (const Collective& call : calls) {
      device_of(call).activate();
      ends.push_back(device_of(call).record(device_of(call).communication()));
    }
    return ends;
  }

 private:
  Communicators& communicators_of(const control::Group& group,
                                  const std::vector<Collective>& calls) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = groups_.find(&group); found != groups_.end()) return *found->second;
    }
    const std::unique_lock alone(driver_gate());  // as in start(), before the mutex
    const std::lock_guard lock(mutex_);
    look_for_failures();
    if (const auto found = groups_.find(&group); found != groups_.end()) return *found->second;
    return *groups_.emplace(&group, std::make_unique<Communicators>(calls)).first->second;
  }

  void look_for_failures() {
    if (!failure_.empty()) fail("{}", failure_);
    try {
      for (const auto& [group, communicators] : groups_) communicators->check();
    } catch (const Error& error) {
      give_up(error.what());
      throw;
    }
  }

  // All groups together, for all ranks stop after a failure. And to end one communicator, NCCL may
  // wait until the device is idle, while the kernels of another one are waiting there.
  void give_up(const std::string& reason) {
    failure_ = reason;
    ncclGroupStart();
    for (const auto& [group, communicators] : groups_) communicators->give_up();
    ncclGroupEnd();
  }

  std::mutex mutex_;
  std::string failure_;
  std::map<const control::Group*, std::unique_ptr<Communicators>> groups_;  // made at first use
};

/// NCCL itself makes ranks wait for each other's operands: a rank's part begins when its own are
/// ready, and ends when its result is complete and its peers have its input.
class NcclTransfer final : public threads::Transfer {
 public:
  NcclTransfer(NcclPlane& plane, const control::Group& group, std::vector<Collective> calls)
      : plane_(plane), group_(group), calls_(std::move(calls)) {}

  std::int64_t chunks() const override { return calls_.front().numel == 0 ? 0 : 1; }
  bool is_small() const override { return true; }
  void run(std::int64_t /*chunk*/) override {
    const KeepDevice keep;
    ends_ = plane_.start(group_, calls_);
  }
  const StreamEvent* end_event(int member) const override {
    return ends_.empty() ? nullptr : ends_[static_cast<std::size_t>(member)].get();
  }

 private:
  NcclPlane& plane_;
  const control::Group& group_;
  std::vector<Collective> calls_;
  std::vector<std::unique_ptr<StreamEvent>> ends_;
};

std::unique_ptr<threads::Transfer> NcclPlane::make_transfer(const control::Group& group,
                                                            std::vector<Collective> calls) {
  return std::make_unique<NcclTransfer>(*this, group, std::move(calls));
}

}  // namespace

std::unique_ptr<threads::DevicePlane> make_nccl_plane() { return std::make_unique<NcclPlane>(); }

}  // namespace fsdp::cuda
