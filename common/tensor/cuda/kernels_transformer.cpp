#include "tensor/cuda/kernels.h"
#include "tensor/cuda/swiglu.h"

namespace fsdp::cuda {

void CudaKernels::swiglu(const Tensor& out, const Tensor& gate, const Tensor& up) {
  dispatch_floating("swiglu", out.dtype(), [&]<class T>(T) {
    cuda::swiglu(compute(), out.data<T>(), gate.data<T>(), up.data<T>(), out.numel());
  });
}

void CudaKernels::swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout,
                                  const Tensor& gate, const Tensor& up) {
  dispatch_floating("swiglu_backward", dout.dtype(), [&]<class T>(T) {
    cuda::swiglu_backward(compute(), dgate.data<T>(), dup.data<T>(), dout.data<T>(), gate.data<T>(),
                          up.data<T>(), dout.numel());
  });
}

}  // namespace fsdp::cuda
