// Task 3 on whole models: outputs, the root rule, what stays and what goes.
#include "support/catch.h"
#include "support/toy.h"
#include "tensor/ops.h"

#include <map>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

const std::vector<ToyConfig> kModels = {
    {.width = 5, .layers = 3},
    {.width = 1, .layers = 2},                       // two elements a unit: empty shards
    {.width = 4, .layers = 3, .root_weight = true},  // the root is a unit
    {.width = 5, .layers = 3, .tied = true},
    {.width = 3, .layers = 2, .nested = true},
    {.width = 5, .layers = 1},
};

Tensor input(std::int64_t width) { return noise({3, width}, 7); }

}  // namespace

TEST_CASE("Outputs have the bits of the plain module", "[3.5]") {
  const ToyConfig config = GENERATE(from_range(kModels));
  const int world_size = GENERATE(1, 2, 3, 4);
  const int depth = GENERATE(0, 1, 2);
  run_ranks({.world_size = world_size, .seed = 4}, [&](ProcessGroup& group) {
    Toy plain(config);
    const Tensor expected = plain(Variable(input(config.width))).data();
    Context::current().generator().set_offset(0);
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ShardedToy toy(config, group, options);
    for (int round = 0; round < 2; ++round) {
      const NoGradScope no_grad;
      const Tensor seen = (*toy.model)(Variable(input(config.width))).data();
      FSDP_CHECK(ops::equal_bits(seen, expected), "round {}: other bits", round);
    }
    FSDP_CHECK(ops::equal_bits((*toy.model)(Variable(input(config.width))).data(), expected),
               "other bits with a tape");
  });
  SUCCEED();
}

TEST_CASE("After a forward only the last unit is held, or the root if it is a unit", "[3.5]") {
  const bool root_weight = GENERATE(false, true);
  const int depth = GENERATE(0, 1, 2);
  const auto held = on_ranks(2, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ShardedToy toy({.root_weight = root_weight}, group, options);
    toy.iteration();
    const Variable loss = toy.loss();
    std::vector<std::string> names;
    for (const auto& unit : toy.sharded->units()) {
      if (unit->state() != ShardedUnit::State::sharded) names.push_back(unit->name());
    }
    return names;
  });
  const std::string kept = root_weight ? "root" : "layers.2";
  CHECK(held[0] == std::vector<std::string>{kept});
  CHECK(held[1] == held[0]);
}

TEST_CASE("The peak of a forward without prefetching is one unit over the floor", "[3.5]") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const auto peaks = on_ranks(world_size, [](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = 0;
    ShardedToy toy({.width = 8, .layers = 5}, group, options);
    MemoryTracker& tracker = Context::current().tracker();
    const NoGradScope no_grad;
    toy.loss();  // makes the rank's scratch
    Context::current().trace().set_recording(true);
    toy.loss();
    std::int64_t held = 0;
    std::int64_t most = 0;
    for (const Event& event : Context::current().trace().events()) {
      if (event.name != "unsharded_param") continue;
      held += event.kind == EventKind::alloc ? event.nbytes : -event.nbytes;
      most = std::max(most, held);
    }
    FSDP_CHECK(held == 0, "{} bytes are left", held);
    FSDP_CHECK(tracker.current()[MemoryKind::unsharded_param] == 0, "something is left");
    return most;
  });
  const std::int64_t shard = (72 + world_size - 1) / world_size;
  CHECK(peaks[0] == 4 * shard * world_size);
}

TEST_CASE("Every rank holds 1/W of the parameters and nothing else", "[2.3]") {
  const ToyConfig config = GENERATE(from_range(kModels));
  const int world_size = GENERATE(1, 2, 3, 4);
  const auto held = on_ranks(world_size, [&](ProcessGroup& group) {
    const MemoryTracker& tracker = Context::current().tracker();
    ShardedToy toy(config, group);
    std::int64_t shards = 0;
    for (const auto& unit : toy.sharded->units()) shards += unit->padded_numel() / group.size();
    FSDP_CHECK(tracker.current()[MemoryKind::sharded_param] == 4 * shards, "not the shards");
    return tracker.current()[MemoryKind::unsharded_param];
  });
  for (const std::int64_t nbytes : held) CHECK(nbytes == 0);
}
