#include "device/cuda/keep_device.h"

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

}  // namespace fsdp::cuda
