// The worlds of the contract suite (tests/common/comm) whose tensors are in the memory of CUDA
// devices: the stand-in's, under streams of every kind.
#include "common/comm/worlds.h"

#include "cuda/ranks_on_devices.h"

namespace fsdp::comm_test {

using cuda_on_host::Mode;
using cuda_on_host::Plan;
using cuda_test::Devices;

namespace {

World world_of(const char* name, const Plan& plan, Devices devices, DeviceData data) {
  return {.name = name,
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
  int cards = 0;
  const bool has_cards = cudaGetDeviceCount(&cards) == cudaSuccess && cards >= world_sizes().back();
  static const std::vector<World> own = {
      world_of("devices of their own", {Mode::lazy, 0}, Devices::own, kCanonical),
      world_of("NCCL, lazy streams", {Mode::lazy, 0}, Devices::own, kNccl),
      world_of("NCCL, random streams", {Mode::random, 3}, Devices::own, kNccl),
  };
  static const std::vector<World> shared = {
      world_of("one device, lazy streams", {Mode::lazy, 0}, Devices::shared, kCanonical),
      world_of("one device, eager streams", {Mode::eager, 17}, Devices::shared, kCanonical),
      world_of("one device, random streams", {Mode::random, 3}, Devices::shared, kCanonical),
  };
  static const std::vector<World> all = [] {
    std::vector<World> both = shared;
    both.insert(both.end(), own.begin(), own.end());
    return both;
  }();
  return has_cards ? all : shared;
}

}  // namespace fsdp::comm_test
