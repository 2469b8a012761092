// By itself: it takes the place of tensor/no_device_kernels.cpp in programs that are linked with
// CUDA.
#include "tensor/cuda/kernels.h"

namespace fsdp {

DeviceKernels& device_kernels() {
  static cuda::CudaKernels kernels;
  return kernels;
}

}  // namespace fsdp
