// A model whose forward skips, repeats or reorders layers: the recorded order is a guess, so
// results stay right, memory stays bounded, and nothing is left over.
#include "event_lists.h"
#include "support/catch.h"

#include <algorithm>
#include <set>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

using Orders = std::vector<std::vector<int>>;

/// What each step of a training calls.
const std::vector<Orders> kPrograms = {
    {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}},                   // no change
    {{0, 1, 2, 3, 4}, {0, 2, 4}, {0, 1, 2, 3, 4}},        // skips, and back
    {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}},  // turns round
    {{0, 1, 2}, {2, 3, 4}, {3, 0, 4, 1}},                 // others
    {{0, 1, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 0, 1}},       // repeats
    {{2}, {0, 1, 2, 3, 4}, {4}},                          // hardly any
};

ToyRun training(const Orders& orders, int depth, int limit) {
  ToyRun run;
  run.model.layers = 5;
  run.steps = static_cast<int>(orders.size());
  run.order = [orders](int step) { return orders[static_cast<std::size_t>(step)]; };
  run.sharding.prefetch_depth = depth;
  run.sharding.in_flight_limit = limit;
  return run;
}

int count_not_sharded(const ShardedModel& model) {
  return static_cast<int>(
      std::count_if(model.units().begin(), model.units().end(),
                    [](const auto& unit) { return unit->state() != ShardedUnit::State::sharded; }));
}

/// The most units that were there or on their way at once during a forward or backward, as the
/// trace tells it.
int most_units_at_once(const Lines& lines) {
  int held = 0;
  int most = 0;
  for (const std::string& line : lines) {
    if (line.starts_with("alloc unsharded_param")) most = std::max(most, ++held);
    if (line.starts_with("free unsharded_param")) --held;
  }
  return most;
}

/// Units that a step calls more than once: between those calls backward keeps them, since their
/// gradients are not complete.
int most_repeated(const Orders& orders) {
  int most = 0;
  for (const std::vector<int>& order : orders) {
    const std::set<int> once(order.begin(), order.end());
    most = std::max(most, static_cast<int>(std::count_if(once.begin(), once.end(), [&](int layer) {
                      return std::count(order.begin(), order.end(), layer) > 1;
                    })));
  }
  return most;
}

}  // namespace

TEST_CASE("Changing control flow changes no bit of the result", "[6.1]") {
  const Orders orders = GENERATE(from_range(kPrograms));
  const ToyResult expected = run_single(training(orders, 0, 0));
  const int depth = GENERATE(0, 1, 2, 4);
  const int limit = GENERATE(0, 1);
  for (const int world_size : {1, 2, 4}) {
    ToyRun run = training(orders, depth, limit);
    run.after_backward = [](Toy&, ShardedModel& model) {
      FSDP_CHECK(count_not_sharded(model) == 0, "{} units are left unsharded after backward",
                 count_not_sharded(model));
    };
    const ToyResult seen = run_sharded(run, world_size);
    CAPTURE(depth, limit, world_size);
    CHECK(difference(seen.gradients, expected.gradients) == "");
    CHECK(difference(seen.parameters, expected.parameters) == "");
  }
}

TEST_CASE("Whatever the control flow, at most depth + 1 units are held, and those that are kept",
          "[6.2][6.1]") {
  const Orders orders = GENERATE(from_range(kPrograms));
  const int depth = GENERATE(1, 2);
  const auto most = on_ranks(2, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ToyConfig config;
    config.layers = 5;
    ShardedToy toy(config, group, options);
    Trace& trace = Context::current().trace();
    trace.set_recording(true);
    for (std::size_t step = 0; step < orders.size(); ++step) {
      toy.model->order = orders[step];
      toy.iteration(static_cast<int>(step));
    }
    trace.set_recording(false);
    return most_units_at_once(trace.lines());
  });
  CAPTURE(depth);
  CHECK(most[0] <= depth + 2 + most_repeated(orders));  // 2: itself, and the last unit
  CHECK(most[1] == most[0]);
}

TEST_CASE("Depth bounds the units held when control flow does not change", "[6.2]") {
  const int depth = GENERATE(0, 1, 2, 3);
  ToyConfig config;
  config.layers = 6;
  FullyShardOptions options;
  options.prefetch_depth = depth;
  CAPTURE(depth);
  CHECK(most_units_at_once(iteration_events(options, 1, config)) == depth + 1);
}

TEST_CASE("Units gathered for nothing are given up at once, before the next gather", "[6.1]") {
  // The first forward records 0 1 2 3; the second goes 0 3: unit 1 was on its way.
  const auto lines = on_ranks(2, [](ProcessGroup& group) {
    ToyConfig config;
    config.layers = 4;
    ShardedToy toy(config, group);
    toy.iteration(0);
    Trace& trace = Context::current().trace();
    trace.set_recording(true);
    toy.model->order = {0, 3};
    toy.iteration(1);
    trace.set_recording(false);
    return only(trace.lines(), {"issue", "wait", "alloc unsharded_param", "free unsharded_param",
                                "forward_begin", "backward_begin"});
  });
  const Lines expected = {
      "alloc unsharded_param layers.0",
      "issue all_gather layers.0/forward",
      "wait all_gather layers.0/forward",
      "alloc unsharded_param layers.1",
      "issue all_gather layers.1/forward",  // for nothing
      "forward_begin layers.0",
      "free unsharded_param layers.0",
      "alloc unsharded_param layers.3",
      "issue all_gather layers.3/forward",
      "wait all_gather layers.3/forward",
      "wait all_gather layers.1/forward",
      "free unsharded_param layers.1",  // given up
      "forward_begin layers.3",
      // backward guesses from this forward, so nothing is gathered for nothing
      "alloc unsharded_param layers.0",
      "issue all_gather layers.0/backward",
      "backward_begin layers.3",
      "free unsharded_param layers.3",
      "issue reduce_scatter layers.3/gradient",
      "wait all_gather layers.0/backward",
      "backward_begin layers.0",
      "free unsharded_param layers.0",
      "wait reduce_scatter layers.3/gradient",
      "issue reduce_scatter layers.0/gradient",
      // the units that took no part send their +0, last first
      "wait reduce_scatter layers.0/gradient",
      "issue reduce_scatter layers.2/gradient",
      "wait reduce_scatter layers.2/gradient",
      "issue reduce_scatter layers.1/gradient",
      "wait reduce_scatter layers.1/gradient",
  };
  CHECK(lines[0] == expected);
  CHECK(lines[1] == expected);
}

TEST_CASE("A forward whose backward never comes leaves nothing behind", "[6.3]") {
  const int depth = GENERATE(0, 1, 2);
  const auto left = on_ranks(2, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ShardedToy toy({}, group, options);
    const std::int64_t floor = Context::current().tracker().current_total();
    toy.iteration(0);
    toy.loss(1);  // dropped
    toy.sharded->begin_step({});
    const int not_sharded = count_not_sharded(*toy.sharded);
    toy.iteration(2);
    return std::vector<std::int64_t>{not_sharded,
                                     Context::current().tracker().current_total() - floor};
  });
  CHECK(left[0] == std::vector<std::int64_t>{0, 0});
  CHECK(left[1] == left[0]);
}
