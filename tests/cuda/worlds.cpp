// The worlds of the contract suite (tests/common/comm) whose tensors are in the memory of CUDA
// devices: the stand-in's, under streams of every kind.
#include "common/comm/worlds.h"

#include "cuda/kernels.h"
#include "cuda/ranks_on_devices.h"

#include <string>

namespace fsdp::comm_test {

using cuda_test::Devices;

namespace {

World world_of(const std::string& name, const Plan& plan, Devices devices, DeviceData data) {
  return {.name = name + ", " + text_of(plan),
          .canonical_bits = data == DeviceData::canonical,
          .on_device = true,
          .run = [=](int world_size, const auto& body) {
            cuda_test::run_on_devices(plan, world_size, devices, data, body);
          }};
}

}  // namespace

const std::vector<int>& world_sizes() {
  static const std::vector<int> sizes = {1, 2, 3, 4};
  return sizes;
}

const std::vector<World>& worlds() {
  constexpr auto kCanonical = DeviceData::canonical, kNccl = DeviceData::nccl;
  // Without the stand-in there may be too few cards for the largest world.
  const bool has_cards = cuda_test::have_cards(world_sizes().back());
  static const std::vector<World> all = [=] {
    std::vector<World> worlds;
    for (const Plan& plan : cuda_test::some_plans()) {
      worlds.push_back(world_of("one device", plan, Devices::shared, kCanonical));
    }
    if (!has_cards) return worlds;
    const Plan lazy = requested_or({Mode::lazy, 0});
    if (cuda_test::have_peers(world_sizes().back())) {
      worlds.push_back(world_of("devices of their own", lazy, Devices::own, kCanonical));
    }
    for (const Plan& plan : requested_or({{Mode::lazy, 0}, {Mode::random, 3}})) {
      worlds.push_back(world_of("NCCL", plan, Devices::own, kNccl));
    }
    return worlds;
  }();
  return all;
}

}  // namespace fsdp::comm_test
