#include "comm/cuda/process_plane.h"

#include "base/check.h"
#include "comm/cuda/nccl_calls.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

namespace fsdp::cuda {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(processes::DeviceGroupId));

/// A communicator that does not block: each call of NCCL may go on after it has returned, and until
/// ncclCommGetAsyncError says otherwise nothing else may be called.
class ProcessGroupOfNccl final : public processes::DeviceGroup {
 public:
  ProcessGroupOfNccl(const ncclUniqueId& id, int rank, int size, std::shared_ptr<RankDevice> device)
      : device_(std::move(device)) {
    device_->activate();
    const char* const blocks = std::getenv("NCCL_COMM_BLOCKING");  // it goes before `config`
    FSDP_CHECK(blocks == nullptr || blocks == std::string_view("0"),
               "NCCL_COMM_BLOCKING is {}, but a process whose calls of NCCL block cannot notice "
               "that another one is gone: unset it",
               blocks);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t answer = ncclCommInitRankConfig(&communicator_, size, id, rank, &config);
    if (is_failure(answer)) fail_to_connect(answer);
  }

  ~ProcessGroupOfNccl() override {
    try {
      device_->activate();
      device_->wait_on_host(*device_->record(device_->communication()));
      if (has_ended_) return;
      if (!is_connected_) {
        give_up();
        return;
      }
      // First, as NCCL asks: what does not block might else be destroyed after this call.
      ncclCommFinalize(communicator_);
      while (!is_ready()) std::this_thread::yield();
      ncclCommDestroy(communicator_);
    } catch (...) {  // what went wrong here did so in an earlier call, which has reported it
      give_up();
    }
  }

  bool is_ready() override {
    ncclResult_t state = ncclSuccess;
    ncclResult_t answer = ncclCommGetAsyncError(communicator_, &state);
    if (answer == ncclSuccess) answer = state;
    if (is_failure(answer)) {
      if (!is_connected_) fail_to_connect(answer);
      fail("{}", message_of_failure(*device_, answer));
    }
    is_connected_ = is_connected_ || answer == ncclSuccess;
    return answer == ncclSuccess;
  }

  void start(const Collective& call) override {
    device_->activate();
    device_->make_wait(device_->communication(), *call.on_device->ready);
    const ncclResult_t answer = cuda::start(call, communicator_);
    if (!is_failure(answer)) return;
    fail("{}", message_of(fmt::format("NCCL could not start {}", name_of(call.op)), answer));
  }

  std::unique_ptr<StreamEvent> started() override {
    device_->activate();
    return device_->record(device_->communication());
  }

  void give_up() noexcept {
    try {
      device_->activate();
      if (!std::exchange(has_ended_, true)) ncclCommAbort(communicator_);
    } catch (...) {  // only the stand-in throws, and has a failure to report
    }
  }

 private:
  static bool is_failure(ncclResult_t answer) {
    return answer != ncclSuccess && answer != ncclInProgress;
  }
  [[noreturn]] void fail_to_connect(ncclResult_t answer) {
    const char* const need =
        answer == ncclInvalidUsage ? " (each process needs a device of its own)" : "";
    fail("{}", message_of(fmt::format("NCCL could not connect cuda:{} to the devices of the other "
                                      "processes{}",
                                      device_->index(), need),
                          answer));
  }

  std::shared_ptr<RankDevice> device_;
  ncclComm_t communicator_ = nullptr;
  bool is_connected_ = false;
  bool has_ended_ = false;
};

class ProcessPlane final : public processes::DevicePlane {
 public:
  processes::DeviceGroupId make_id() override {
    ncclUniqueId id;
    const ncclResult_t answer = ncclGetUniqueId(&id);
    FSDP_CHECK(answer == ncclSuccess, "{}", message_of("NCCL could not make an id", answer));
    processes::DeviceGroupId bytes;
    std::memcpy(bytes.data(), &id, sizeof id);
    return bytes;
  }
  std::unique_ptr<processes::DeviceGroup> connect(const processes::DeviceGroupId& bytes, int rank,
                                                  int size,
                                                  std::shared_ptr<RankDevice> device) override {
    ncclUniqueId id;
    std::memcpy(&id, bytes.data(), sizeof id);
    return std::make_unique<ProcessGroupOfNccl>(id, rank, size, std::move(device));
  }
  // Together: to end one communicator, NCCL may wait until the device is idle, and the kernels of
  // another one may be waiting there too.
  void give_up(const std::vector<processes::DeviceGroup*>& groups) noexcept override {
    ncclGroupStart();
    for (processes::DeviceGroup* group : groups)
      dynamic_cast<ProcessGroupOfNccl&>(*group).give_up();
    try {
      ncclGroupEnd();
    } catch (...) {  // only the stand-in throws, and has a failure to report
    }
  }
};

}  // namespace

std::unique_ptr<processes::DevicePlane> make_process_plane() {
  return std::make_unique<ProcessPlane>();
}

}  // namespace fsdp::cuda
