#include "graded/device.h"

#include "base/check.h"
#include "tensor/ops.h"

#include <cstdlib>

namespace fsdp::graded {

Device device_named(const std::string& name) {
  if (name == "cpu") return kCpu;
  FSDP_CHECK(name == "cuda", "unknown device '{}': use cpu or cuda", name);
  return kCuda;
}

Device device_of_case(const Json& options) {
  const char* const value = std::getenv("FSDP_DEVICE");
  const Device device = value == nullptr || *value == '\0' ? kCpu : device_named(value);
  // "mixed" is a model that has parameters of float64.
  const bool is_wide = options.value("wide", false) || options.value("double", false) ||
                       options.value("model", std::string()) == "mixed";
  return is_wide ? kCpu : device;
}

Context::Options rank_options(Device device, std::uint64_t seed) {
  Context::Options options;
  options.seed = seed;
  options.device = device;
  options.segment_nbytes = 0;
  options.workspace_nbytes = 1024;
  return options;
}

RankOptions ranks_on(Device device, int world_size, std::uint64_t seed) {
  RankOptions options{.world_size = world_size, .seed = seed};
  if (device == kCpu) return options;
  const Context::Options own = rank_options(device, seed);
  options.devices = {device};
  options.segment_nbytes = own.segment_nbytes;
  options.workspace_nbytes = own.workspace_nbytes;
  return options;
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
