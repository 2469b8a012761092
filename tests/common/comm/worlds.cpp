#include "worlds.h"

#include "comm/decorators.h"
#include "comm/world.h"

#include <memory>

namespace fsdp::comm_test {
namespace {

void run_recorded(int world_size, const std::function<void(ProcessGroup&)>& body) {
  RankOptions options;
  options.world_size = world_size;
  options.decorate = [](std::shared_ptr<Backend> backend) {
    return make_recording(std::move(backend), std::make_shared<CollectiveLog>());
  };
  run_ranks(options, body);
}

void run_throttled(int world_size, const std::function<void(ProcessGroup&)>& body) {
  RankOptions options;
  options.world_size = world_size;
  options.decorate = [](std::shared_ptr<Backend> backend) {
    return make_throttled(std::move(backend), LinkModel{});  // an infinitely fast link
  };
  run_ranks(options, body);
}

}  // namespace

const std::vector<World>& worlds() {
  static const std::vector<World> all = {
      {"plain", true, [](int world_size, const auto& body) { run_ranks(world_size, body); }},
      {"recorded", true, run_recorded},
      {"throttled", true, run_throttled},
  };
  return all;
}

void in_every_world(const std::function<void(const World&, ProcessGroup&)>& body) {
  for (const World& world : worlds()) {
    for (const int world_size : kWorldSizes) {
      INFO("world: " << world.name << ", " << world_size << " ranks");
      world.run(world_size, [&](ProcessGroup& group) { body(world, group); });
      SUCCEED();
    }
  }
}

}  // namespace fsdp::comm_test
