/// @file
/// @ingroup tensor
/// What every kernel call goes through.
#pragma once

#include "base/check.h"
#include "base/clock.h"
#include "device/context.h"
#include "tensor/device_kernels.h"
#include "tensor/tensor.h"

namespace fsdp {

/// Waits until the host may touch memory that is copied from or to a CUDA device.
inline void finish_copies() {
  if (RankDevice* device = Context::current().rank_device_or_null()) device->finish_copies();
}

/// Runs the CPU kernel. On fake it only advances the virtual clock by the cost, which on the host
/// is the traffic alone; on meta it does nothing.
template <class CpuKernel>
void dispatch(Device device, Cost cost, CpuKernel&& cpu_kernel) {
  switch (device.type) {
    case DeviceType::cpu:
      if (device.is_host()) finish_copies();
      cpu_kernel();
      return;
    case DeviceType::fake:
      if (VirtualClock* clock = Context::current().clock()) {
        device.is_host() ? clock->compute_on_host(cost.nbytes) : clock->compute(cost);
      }
      return;
    case DeviceType::meta:
      return;
    case DeviceType::cuda:
      fail(
          "this operation has no kernel for CUDA: copy its operands to the cpu, and the result "
          "back");
  }
}

/// Calls body with a value of the element type:
/// `dispatch_floating(t.dtype(), [&]<class T>(T) {…})`.
/// The body loads and stores T, and computes in Wide<T>.
template <class Body>
void dispatch_floating(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32:
      return body(float{});
    case DType::float64:
      return body(double{});
    case DType::bfloat16:
      return body(BFloat16{});
    case DType::float16:
      return body(Float16{});
    default:
      fail("expected a floating dtype, got {}", name_of(dtype));
  }
}

/// The same for every element type.
template <class Body>
void dispatch_any(DType dtype, Body&& body) {
  if (dtype == DType::int32) return body(std::int32_t{});
  if (dtype == DType::int64) return body(std::int64_t{});
  dispatch_floating(dtype, body);
}

}  // namespace fsdp
