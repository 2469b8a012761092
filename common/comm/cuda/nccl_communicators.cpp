#include "comm/cuda/nccl_communicators.h"

#include "base/check.h"
#include "comm/cuda/nccl_calls.h"
#include "comm/cuda/thread_device.h"
#include "device/cuda/driver_gate.h"
#include "device/cuda/keep_device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

namespace fsdp::cuda {
namespace {

// See driver_gate(). With one device, no launch waits for another.
void check_module_loading(std::size_t devices) {
  const char* const set = std::getenv("CUDA_MODULE_LOADING");
  const std::string_view loading = set == nullptr ? "not set" : set;
  FSDP_CHECK(devices == 1 || loading == "EAGER",
             "NCCL would launch on {} devices of one process, but CUDA_MODULE_LOADING is {}: a "
             "kernel that is loaded at its first launch may wait forever for a collective that is "
             "launched on some of them. Do not set it, or set EAGER; or start a process for each "
             "card.",
             devices, loading);
}

}  // namespace

Communicators::Communicators(const std::vector<Collective>& calls) {
  check_module_loading(calls.size());
  std::vector<int> indices;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    const int index = device_of(calls[rank]).index();
    for (std::size_t other = 0; other < rank; ++other) {
      FSDP_CHECK(
          indices[other] != index,
          "NCCL needs a device for every rank, but ranks {} and {} of this group are both on "
          "cuda:{}. Give each rank its own, or leave device_data at canonical.",
          other, rank, index);
    }
    indices.push_back(index);
    devices_.push_back(calls[rank].on_device->device);
  }
  communicators_.resize(calls.size());
  const ncclResult_t answer =
      ncclCommInitAll(communicators_.data(), static_cast<int>(indices.size()), indices.data());
  FSDP_CHECK(answer == ncclSuccess, "{}",
             message_of(fmt::format("NCCL could not connect {} devices", indices.size()), answer));
}

Communicators::~Communicators() {
  const KeepDevice keep;
  try {
    if (have_ended_) return;
    for (const auto& device : devices_) {
      device->activate();
      device->wait_on_host(*device->record(device->communication()));
    }
    const std::unique_lock alone(driver_gate());
    for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  } catch (...) {  // what went wrong here did so in an earlier call, which has reported it
  }
}

void Communicators::start(const std::vector<Collective>& calls) {
  ncclResult_t answer = ncclGroupStart();
  for (std::size_t rank = 0; answer == ncclSuccess && rank < calls.size(); ++rank) {
    answer = cuda::start(calls[rank], communicators_[rank]);
  }
  const ncclResult_t end = ncclGroupEnd();
  if (answer == ncclSuccess) answer = end;
  FSDP_CHECK(answer == ncclSuccess, "{}",
             message_of(fmt::format("NCCL could not start {}", name_of(calls[0].op)), answer));
}

void Communicators::check() const {
  for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t answer = ncclCommGetAsyncError(communicators_[rank], &state);
    if (answer == ncclSuccess) answer = state;
    if (answer == ncclSuccess || answer == ncclInProgress) continue;
    fail("{}", message_of_failure(*devices_[rank], answer));
  }
}

void Communicators::give_up() {
  have_ended_ = true;
  for (ncclComm_t communicator : communicators_) ncclCommAbort(communicator);
}

}  // namespace fsdp::cuda
