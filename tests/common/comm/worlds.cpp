#include "worlds.h"

#include "comm/world.h"
#include "support/throttled.h"

#include <memory>

namespace fsdp::comm_test {
namespace {

void run_throttled(int world_size, const std::function<void(ProcessGroup&)>& body) {
  RankOptions options;
  options.world_size = world_size;
  options.decorate = [](std::shared_ptr<Backend> backend) {
    // An infinitely fast link.
    return std::make_shared<testing::Throttled>(std::move(backend), testing::LinkModel{});
  };
  run_ranks(options, body);
}

}  // namespace

const std::vector<int>& world_sizes() {
  static const std::vector<int> sizes = {1, 2, 3, 4, 5, 8};
  return sizes;
}

const std::vector<World>& worlds() {
  static const std::vector<World> all = {
      {"plain", true, false, [](int world_size, const auto& body) { run_ranks(world_size, body); }},
      {"throttled", true, false, run_throttled},
  };
  return all;
}

}  // namespace fsdp::comm_test
