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
  if (Context::current().device() == kFake) {
    call();
    return 0;
  }
  calls();
  return best_time(calls, kBudget) / kCalls;
}

void fill_on_device(const Tensor& tensor, const std::function<void(const Tensor&)>& fill) {
  if (tensor.device() == kFake) return;
  const DeviceScope scope(kCpu);
  const Tensor on_cpu = Tensor::empty(tensor.shape(), tensor.dtype());
  fill(on_cpu);
  ops::copy(tensor, on_cpu);
}

Tensor device_values(const Shape& shape, DType dtype) {
  const Tensor wide = Tensor::empty(shape);
  fill_on_device(wide, [&](const Tensor& on_cpu) { ops::copy(on_cpu, values(shape)); });
  if (dtype == DType::float32) return wide;
  const Tensor narrow = Tensor::empty(shape, dtype);
  ops::copy(narrow, wide);
  return narrow;
}

}  // namespace fsdp::bench
