#include "bench/cuda/timed.h"

#include "bench/support/measure.h"
#include "device/context.h"
#include "tensor/ops.h"

namespace fsdp::bench {

double device_seconds(const std::function<void()>& call) {
  constexpr int kCalls = 10;
  constexpr double kBudget = 0.3;
  const auto calls = [&] {
    for (int i = 0; i < kCalls; ++i) call();
    Context::current().rank_device().synchronize();
  };
  calls();
  return best_time(calls, kBudget) / kCalls;
}

Tensor device_values(const Shape& shape, DType dtype) {
  const Tensor wide = Tensor::empty(shape);
  {
    const DeviceScope on_cpu(kCpu);
    ops::copy(wide, values(shape));
  }
  if (dtype == DType::float32) return wide;
  const Tensor narrow = Tensor::empty(shape, dtype);
  ops::copy(narrow, wide);
  return narrow;
}

}  // namespace fsdp::bench
