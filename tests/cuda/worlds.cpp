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
  static const std::vector<World> all = {
      world_of("one device, lazy streams", {Mode::lazy, 0}, Devices::shared, kCanonical),
      world_of("one device, eager streams", {Mode::eager, 17}, Devices::shared, kCanonical),
      world_of("one device, random streams", {Mode::random, 3}, Devices::shared, kCanonical),
      world_of("devices of their own", {Mode::lazy, 0}, Devices::own, kCanonical),
      world_of("NCCL, lazy streams", {Mode::lazy, 0}, Devices::own, kNccl),
      world_of("NCCL, random streams", {Mode::random, 3}, Devices::own, kNccl),
  };
  return all;
}

}  // namespace fsdp::comm_test
