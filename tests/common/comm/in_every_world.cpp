#include "worlds.h"

namespace fsdp::comm_test {

void in_every_world(const std::function<void(const World&, ProcessGroup&)>& body) {
  for (const World& world : worlds()) {
    for (const int world_size : world_sizes()) {
      INFO("world: " << world.name << ", " << world_size << " ranks");
      world.run(world_size, [&](ProcessGroup& group) { body(world, group); });
      SUCCEED();
    }
  }
}

}  // namespace fsdp::comm_test
