// Ranks that throw or leave: every rank ends, with what was thrown and a table of who waits where.
#include "sabotage.h"
#include "support/catch.h"

#include <algorithm>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

const std::string kCable = "the cable of rank 1 is cut";

/// Two iterations, the second of which finds gathers ahead. `sabotage` prepares the culprit's model
/// in between.
Outcome run_sabotaged(int world_size, int depth, const std::function<void(Toy&)>& sabotage) {
  return run_failing(world_size, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ShardedToy toy({}, group, options);
    toy.iteration(0);
    if (group.rank() == kCulprit) sabotage(*toy.model);
    toy.iteration(1);
  });
}

/// Every other rank waits for a collective of the second iteration, or was about to call one.
void check_others(const Outcome& outcome, const std::vector<std::string>& states) {
  for (const Row& row : table_in(outcome.seen[0])) {
    CAPTURE(outcome.seen[0], row.rank, row.state);
    CHECK(std::stoi(row.sequence) >= 7);  // of 8 collectives an iteration
    CHECK((row.operation == "all_gather" || row.operation == "reduce_scatter"));
    CHECK(row.unit.starts_with("layers."));
    CHECK(row.elements == table_in(outcome.seen[0])[kCulprit].elements);
    if (row.rank == kCulprit) continue;
    CHECK(std::find(states.begin(), states.end(), row.state) != states.end());
  }
}

}  // namespace

TEST_CASE("A rank that throws in forward") {
  const int world_size = GENERATE(2, 3, 4);
  const int depth = GENERATE(0, 1, 2);
  const Outcome outcome = run_sabotaged(world_size, depth, [](Toy& model) {
    model.layers()[1]->register_forward_pre_hook([](nn::Module&) { fail("{}", kCable); });
  });
  check_ended(outcome, world_size, kCulprit, true);
  CHECK(outcome.error == "rank 1: " + kCable);
  check_others(outcome, {"waits", "computes"});
}

TEST_CASE("A rank that throws in backward") {
  const int world_size = GENERATE(2, 3, 4);
  const int depth = GENERATE(0, 1, 2);
  const int layer = GENERATE(2, 1, 0);
  const bool before = GENERATE(true, false);
  const Outcome outcome = run_sabotaged(world_size, depth, [&](Toy& model) {
    const nn::ModuleHook hook = [](nn::Module&) { fail("{}", kCable); };
    ToyLayer& module = *model.layers()[static_cast<std::size_t>(layer)];
    if (before) {
      module.register_full_backward_pre_hook(hook);
    } else {
      module.register_full_backward_hook(hook);
    }
  });
  CAPTURE(world_size, depth, layer, before);
  // What layers.0 sends last is on its way when its last hook throws: then the others may be done.
  if (layer == 0 && !before) {
    CHECK(outcome.ended == world_size);
    CHECK(outcome.error == "rank 1: " + kCable);
    return;
  }
  check_ended(outcome, world_size, kCulprit, true);
  CHECK(outcome.error == "rank 1: " + kCable);
  check_others(outcome, {"waits", "computes"});
}

TEST_CASE("A rank that throws something else than an Error") {
  const Outcome outcome = run_sabotaged(2, 1, [](Toy& model) {
    model.layers()[2]->register_forward_pre_hook(
        [](nn::Module&) { throw std::runtime_error("out of luck"); });
  });
  check_ended(outcome, 2, kCulprit, true);
  CHECK(outcome.error == "rank 1: out of luck");
}

TEST_CASE("A rank that returns after its forward") {
  const int world_size = GENERATE(2, 3, 4);
  const int depth = GENERATE(0, 1, 2);
  const Outcome outcome = run_failing(world_size, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ShardedToy toy({}, group, options);
    toy.sharded->begin_step({});
    const Variable loss = toy.loss();
    if (group.rank() == kCulprit) return;
    loss.backward();
  });
  check_ended(outcome, world_size, kCulprit, false);
  CHECK(outcome.seen[kCulprit] == "");
  CHECK_THAT(outcome.error, contains("which rank 1 has not called, and rank 1 has returned"));
  const std::vector<Row> rows = table_in(outcome.error);
  REQUIRE(rows.size() == static_cast<std::size_t>(world_size));
  CHECK(rows[kCulprit].sequence == "2");  // the last it called
  CHECK(rows[kCulprit].unit == "layers.2/forward");
  CHECK(rows[kCulprit].state == "returned");
  // Without prefetching, the first reduction is issued before the gather that backward waits for.
  const auto waits = [&](const Row& row) {
    return row.state == "waits" && row.operation == "all_gather" &&
           row.unit == "layers.1/backward" && row.sequence == (depth == 0 ? "4" : "3");
  };
  CHECK(std::any_of(rows.begin(), rows.end(), waits));
}

TEST_CASE("A rank that runs a micro-step less") {
  const int world_size = GENERATE(2, 3, 4);
  const Outcome outcome = run_failing(world_size, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    const int micro_steps = group.rank() == kCulprit ? 1 : 2;
    toy.sharded->begin_step({2, 1});
    for (int m = 0; m < micro_steps; ++m) {
      toy.loss(m).backward();
      toy.sharded->end_micro_step();
    }
  });
  check_ended(outcome, world_size, kCulprit, false);
  CHECK_THAT(outcome.error, contains("rank 1 has returned"));
  CHECK(table_in(outcome.error)[kCulprit].unit == "layers.0/gradient");
}

TEST_CASE("A rank that runs a micro-step less and notices") {
  const Outcome outcome = run_failing(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.sharded->begin_step({2, 1});
    for (int m = 0; m < (group.rank() == kCulprit ? 1 : 2); ++m) {
      toy.loss(m).backward();
      toy.sharded->end_micro_step();
    }
    toy.sharded->finish_gradients();
  });
  check_ended(outcome, 2, kCulprit, true);
  CHECK_THAT(outcome.error, contains("finish_gradients after 1 of 2 micro-steps"));
}

TEST_CASE("A rank that throws while a checkpoint is gathered") {
  const int world_size = GENERATE(2, 4);
  const Outcome outcome = run_failing(world_size, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.sharded->for_each_full_parameter([&](const nn::NamedParameter& parameter, const Tensor&) {
      if (group.rank() == kCulprit && parameter.path == "layers.1.bias") fail("{}", kCable);
    });
  });
  check_ended(outcome, world_size, kCulprit, true);
  CHECK(outcome.error == "rank 1: " + kCable);
}
