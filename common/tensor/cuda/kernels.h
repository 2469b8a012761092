/// @file
/// @ingroup tensor
/// The kernels of tensor/cuda as functions on tensors.
#pragma once

#include "device/context.h"
#include "device/cuda/stream.h"
#include "tensor/device_kernels.h"
#include "tensor/dispatch.h"
#include "tensor/ops.h"

namespace fsdp::cuda {

using ops::Transpose;
using ops::Write;

/// Fill the table. Each kernel takes the addresses out of its tensors and calls the function of the
/// same name on the rank's compute stream.
void add_elementwise_kernels(DeviceKernels& kernels);
void add_transformer_kernels();
void add_optimizer_kernels(DeviceKernels& kernels);

/// The stream of this rank's kernels.
inline Stream compute() { return Context::current().rank_device().compute(); }

/// dispatch_floating() for kernels of CUDA, which do not compute in float64.
template <class Body>
void dispatch_floating(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32:
      return body(float{});
    case DType::bfloat16:
      return body(BFloat16{});
    case DType::float16:
      return body(Float16{});
    default:
      fail("{} has no kernel for {} on CUDA: use float32, bfloat16 or float16, or the cpu",
           operation, name_of(dtype));
  }
}

}  // namespace fsdp::cuda
