// Task 6: what the prefetcher remembers, and how far ahead it goes. Event lists and times are in
// tests/schedule.
#include "task6_prefetching/prefetching.h"

#include "support/catch.h"
#include "support/toy.h"

#include <memory>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

using Names = std::vector<std::string>;
using State = ShardedUnit::State;

FullyShardOptions with(int depth, int limit = 0) {
  FullyShardOptions options;
  options.prefetch_depth = depth;
  options.in_flight_limit = limit;
  return options;
}

Names names_of(const std::vector<ShardedUnit*>& units) {
  Names names;
  for (const ShardedUnit* unit : units) names.push_back(unit->name());
  return names;
}

/// Units in the given state.
Names units_in(const ShardedModel& model, State state) {
  Names names;
  for (const auto& unit : model.units()) {
    if (unit->state() == state) names.push_back(unit->name());
  }
  return names;
}

/// What is unsharded and what is on its way while layer `layer` computes, in the second of two
/// forwards (of the given orders).
struct Snapshot {
  Names there;
  Names on_their_way;
};
Snapshot during(int layer, const FullyShardOptions& options, const std::vector<int>& first,
                const std::vector<int>& second, bool in_backward = false) {
  const auto snapshots = on_ranks(2, [&](ProcessGroup& group) {
    ToyConfig config;
    config.layers = 5;
    ShardedToy toy(config, group, options);
    toy.model->order = first;
    toy.iteration(0);
    toy.model->order = second;
    Snapshot snapshot;
    const nn::ModuleHook look = [&](nn::Module&) {
      snapshot = {units_in(*toy.sharded, State::unsharded),
                  units_in(*toy.sharded, State::unsharding)};
    };
    nn::Module& module = *toy.model->layers()[static_cast<std::size_t>(layer)];
    if (in_backward) {
      module.register_full_backward_pre_hook(look);
    } else {
      module.register_forward_pre_hook(look);
    }
    toy.iteration(1);
    return snapshot;
  });
  CHECK(snapshots[0].there == snapshots[1].there);
  CHECK(snapshots[0].on_their_way == snapshots[1].on_their_way);
  return snapshots[0];
}

const std::vector<int> kAll = {0, 1, 2, 3, 4};

}  // namespace

TEST_CASE("The order is recorded during forward, and complete when it has ended", "[6.3][6.4]") {
  const auto orders = on_ranks(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group, with(1));
    const Prefetcher& prefetcher = *toy.sharded->prefetcher();
    std::vector<Names> seen{names_of(prefetcher.recorded_order())};
    for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 0}, {1, 1, 0}}) {
      toy.model->order = order;
      toy.iteration();
      seen.push_back(names_of(prefetcher.recorded_order()));
    }
    return seen;
  });
  CHECK(orders[0] == std::vector<Names>{{},
                                        {"layers.0", "layers.1", "layers.2"},
                                        {"layers.2", "layers.0"},
                                        {"layers.1", "layers.1", "layers.0"}});
  CHECK(orders[1] == orders[0]);
}

TEST_CASE("A forward that throws is not an order", "[6.3]") {
  const auto orders = on_ranks(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group, with(1));
    toy.iteration(0);
    const int hook =
        toy.model->layers()[1]->register_forward_pre_hook([](nn::Module&) { fail("not today"); });
    FSDP_CHECK(message_of<Error>([&] { toy.loss(1); }) == "not today", "no throw");
    const Names order = names_of(toy.sharded->prefetcher()->recorded_order());
    toy.model->layers()[1]->remove_hook(hook);
    toy.iteration(2);
    FSDP_CHECK(units_in(*toy.sharded, State::sharded).size() == 3, "something is left");
    return order;
  });
  CHECK(orders[0] == Names{"layers.0", "layers.1", "layers.2"});
}

TEST_CASE("Forward: depth units ahead are on their way while a unit computes", "[6.4][6.2]") {
  CHECK(during(1, with(1), kAll, kAll).on_their_way == Names{"layers.2"});
  CHECK(during(1, with(2), kAll, kAll).on_their_way == Names{"layers.2", "layers.3"});
  CHECK(during(1, with(9), kAll, kAll).on_their_way == Names{"layers.2", "layers.3", "layers.4"});
  CHECK(during(4, with(2), kAll, kAll).on_their_way.empty());
  CHECK(during(1, with(0), kAll, kAll).on_their_way.empty());
  CHECK(during(1, with(2), kAll, kAll).there == Names{"layers.1"});
}

TEST_CASE("Backward: the reverse, without the unit that was kept", "[6.5][6.2]") {
  const bool back = true;
  CHECK(during(4, with(1), kAll, kAll, back).on_their_way == Names{"layers.3"});
  CHECK(during(4, with(2), kAll, kAll, back).on_their_way == Names{"layers.2", "layers.3"});
  CHECK(during(3, with(1), kAll, kAll, back).on_their_way == Names{"layers.2"});
  CHECK(during(3, with(1), kAll, kAll, back).there == Names{"layers.3"});
  CHECK(during(0, with(2), kAll, kAll, back).on_their_way.empty());
}

TEST_CASE("No more gathers than the limit are in flight", "[6.2]") {
  CHECK(during(0, with(3, 1), kAll, kAll).on_their_way == Names{"layers.1"});
  CHECK(during(0, with(3, 2), kAll, kAll).on_their_way == Names{"layers.1", "layers.2"});
  CHECK(during(0, with(3, 9), kAll, kAll).on_their_way ==
        Names{"layers.1", "layers.2", "layers.3"});
  CHECK(during(4, with(3, 1), kAll, kAll, true).on_their_way == Names{"layers.3"});
}

TEST_CASE("A unit that comes later than expected moves the guess, and what is stale goes",
          "[6.1]") {
  const std::vector<int> skips = {0, 2, 3, 4};
  const Snapshot at_2 = during(2, with(1), kAll, skips);
  CHECK(at_2.on_their_way == Names{"layers.3"});
  CHECK(at_2.there == Names{"layers.2"});
  CHECK(during(3, with(1), kAll, skips).on_their_way == Names{"layers.4"});
}

TEST_CASE("A unit that the guess does not hold leaves it where it is", "[6.1]") {
  const std::vector<int> without_1 = {0, 2, 3, 4};
  CHECK(during(1, with(1), without_1, kAll).on_their_way == Names{"layers.2"});
  CHECK(during(2, with(1), without_1, kAll).on_their_way == Names{"layers.3"});
}

TEST_CASE("What was gathered ahead and not used goes when forward ends", "[6.3]") {
  // The guess says 0 1 2 3 4, but forward stops after 1.
  const auto left = on_ranks(2, [](ProcessGroup& group) {
    ToyConfig config;
    config.layers = 5;
    ShardedToy toy(config, group, with(2));
    toy.iteration(0);
    toy.model->order = {0, 1};
    const Variable loss = toy.loss(1);
    return units_in(*toy.sharded, State::sharded).size();
  });
  CHECK(left[0] == 5);
  CHECK(left[1] == 5);
}

TEST_CASE("A prefetcher of depth 0 or less, or of a negative limit, is an error", "[6.3]") {
  CHECK(message_of<Error>([] { Prefetcher({}, {1, 0}); }) == "");
  CHECK_THAT(message_of<Error>([] { Prefetcher({}, {0, 0}); }), contains("prefetch depth is 0"));
  CHECK_THAT(message_of<Error>([] { Prefetcher({}, {-1, 0}); }), contains("prefetch depth is -1"));
  CHECK_THAT(message_of<Error>([] { Prefetcher({}, {1, -2}); }), contains("limit is -2"));
  CHECK(Prefetcher({}, {3, 0}).options().in_flight_limit == 3);  // the depth
}

TEST_CASE("At depth 0 there is no prefetcher", "[6.3]") {
  const auto found = on_ranks(2, [](ProcessGroup& group) {
    return static_cast<int>(ShardedToy({}, group, with(0)).sharded->prefetcher() != nullptr);
  });
  CHECK(found == std::vector<int>{0, 0});
}
