// The worlds of the contract suite (tests/common/comm) whose ranks are processes, each with a CUDA
// device of its own: the stand-in's, under streams of every kind.
#include "common/comm/worlds.h"
#include "cuda/kernels.h"
#include "cuda/ranks_on_devices.h"

namespace fsdp::comm_test {
namespace {

World world_of(const Plan& plan) {
  return {.name = text_of(plan),
          .canonical_bits = false,
          .on_device = true,
          .run = [plan](int world_size, const auto& body) {
            cuda_test::run_on_devices(plan, world_size, cuda_test::Devices::own, DeviceData::nccl,
                                      body);
          }};
}

}  // namespace

const std::vector<int>& world_sizes() {
  static const std::vector<int> sizes = {1, 2, 3, 4};
  return sizes;
}

const std::vector<World>& worlds() {
  static const std::vector<World> all = [] {
    std::vector<World> made;
    for (const Plan& plan : cuda_test::some_plans()) made.push_back(world_of(plan));
    return made;
  }();
  return all;
}

}  // namespace fsdp::comm_test
