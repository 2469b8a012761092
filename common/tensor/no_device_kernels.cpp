// By itself, so that a program may bring its own: those that are linked with CUDA do.
#include "tensor/device_kernels.h"

namespace fsdp {

const DeviceKernels& device_kernels() {
  static const DeviceKernels none;
  return none;
}

}  // namespace fsdp
