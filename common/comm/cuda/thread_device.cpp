#include "comm/cuda/thread_device.h"

namespace fsdp::cuda {

RankDevice& device_of(const Collective& call) { return *call.on_device->device; }

void drain(const std::vector<Collective>& calls) noexcept {
  for (const Collective& call : calls) {
    try {
      RankDevice& device = device_of(call);
      device.activate();
      device.wait_on_host(*device.record(device.communication()));
    } catch (...) {  // the first failure is the one that is reported
    }
  }
}

}  // namespace fsdp::cuda
