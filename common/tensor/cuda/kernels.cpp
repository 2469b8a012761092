// By itself: it takes the place of tensor/no_device_kernels.cpp in programs that are linked with
// CUDA.
#include "tensor/cuda/kernels.h"

namespace fsdp {

const DeviceKernels& device_kernels() {
  static const DeviceKernels kernels = [] {
    DeviceKernels made;
    cuda::add_elementwise_kernels(made);
    cuda::add_transformer_kernels();
    cuda::add_optimizer_kernels(made);
    return made;
  }();
  return kernels;
}

}  // namespace fsdp
