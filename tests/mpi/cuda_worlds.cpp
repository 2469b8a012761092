// The worlds of the contract suite (tests/common/comm) whose ranks are processes, each with a CUDA
// device of its own: the stand-in's, under streams of every kind.
#include "common/comm/worlds.h"
#include "cuda/ranks_on_devices.h"

namespace fsdp::comm_test {

using cuda_on_host::Mode;

const std::vector<int>& world_sizes() {
  static const std::vector<int> sizes = {1, 2, 3, 4};
  return sizes;
}

const std::vector<World>& worlds() {
  static const std::vector<World> all = [] {
    std::vector<World> made;
    for (const auto& [name, plan] :
         {std::pair{"lazy streams", cuda_on_host::Plan{Mode::lazy, 0}},
          std::pair{"eager streams", cuda_on_host::Plan{Mode::eager, 17}},
          std::pair{"random streams", cuda_on_host::Plan{Mode::random, 3}}}) {
      made.push_back({.name = name,
                      .canonical_bits = false,
                      .on_device = true,
                      .run = [plan = plan](int world_size, const auto& body) {
                        cuda_test::run_on_devices(plan, world_size, cuda_test::Devices::own,
                                                  DeviceData::nccl, body);
                      }});
    }
    return made;
  }();
  return all;
}

}  // namespace fsdp::comm_test
