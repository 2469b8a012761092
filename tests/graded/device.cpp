#include "graded/device.h"

#include "base/check.h"
#include "device/context.h"
#include "tensor/ops.h"

namespace fsdp::graded {

Device device_named(const std::string& name) {
  if (name == "cpu") return kCpu;
  FSDP_CHECK(name == "cuda", "unknown device '{}': use cpu or cuda", name);
  return kCuda;
}

Device device_of_rank() { return Context::current().options().device; }

void take_scratch() {
  Context& context = Context::current();
  context.pool();
  if (context.device().type != DeviceType::cuda) return;
  const Tensor one = Tensor::zeros({1, 1});
  ops::matmul(Tensor::zeros({1, 1}), one, ops::Transpose::no, one, ops::Transpose::no);
}

}  // namespace fsdp::graded
