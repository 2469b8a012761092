#include "comm/cuda/thread_device.h"

#include "device/cuda/launch.h"

#include <cuda_runtime.h>

namespace fsdp::cuda {

KeepDevice::KeepDevice() { require(cudaGetDevice(&device_), "cudaGetDevice"); }

KeepDevice::~KeepDevice() {
  try {
    cudaSetDevice(device_);
  } catch (...) {  // only the stand-in throws
  }
}

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
