// Ranks that call different collectives: every rank ends, with a table of who called what.
#include "sabotage.h"
#include "support/catch.h"

#include <fmt/format.h>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// n of a unit of a toy: a weight (d, d) and a bias (d) over W ranks.
std::string shard_numel(std::int64_t width, int world_size) {
  return std::to_string((width * width + width + world_size - 1) / world_size);
}

/// What all ranks must have been told about one row of the table.
struct Expected {
  std::string sequence;
  std::string operation;
  std::string unit;
  std::string elements;
};

/// All ranks called the collective, and `culprit` called another than the others did.
void check_table(const Outcome& outcome, const Expected& others, const Expected& culprit) {
  const std::vector<Row> rows = table_in(outcome.error);
  REQUIRE(rows.size() == outcome.seen.size());
  for (const Row& row : rows) {
    const Expected& expected = row.rank == kCulprit ? culprit : others;
    CAPTURE(outcome.error, row.rank);
    CHECK(row.sequence == expected.sequence);
    CHECK(row.operation == expected.operation);
    CHECK(row.unit == expected.unit);
    CHECK(row.elements == expected.elements);
    CHECK((row.state == "waits" || row.state == "computes"));
  }
}

/// An iteration in which the culprit's forward goes another way.
Outcome run_with_order(int world_size, int depth, const std::vector<int>& culprits_order) {
  return run_failing(world_size, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    ShardedToy toy({}, group, options);
    if (group.rank() == kCulprit) toy.model->order = culprits_order;
    toy.iteration();
  });
}

}  // namespace

TEST_CASE("A rank that skips a unit") {
  const int world_size = GENERATE(2, 3, 4);
  const int depth = GENERATE(0, 1);
  const Outcome outcome = run_with_order(world_size, depth, {0, 2});
  check_ended(outcome, world_size, kCulprit, false);
  CHECK_THAT(outcome.error, contains("ranks disagree on the label of collective 1: "
                                     "layers.1/forward on rank 0, layers.2/forward on rank 1"));
  const std::string n = shard_numel(5, world_size);
  check_table(outcome, {"1", "all_gather", "layers.1/forward", n},
              {"1", "all_gather", "layers.2/forward", n});
}

TEST_CASE("A rank that swaps two units") {
  const int world_size = GENERATE(2, 3, 4);
  const Outcome outcome = run_with_order(world_size, GENERATE(0, 1), {1, 0, 2});
  check_ended(outcome, world_size, kCulprit, false);
  const std::string n = shard_numel(5, world_size);
  check_table(outcome, {"0", "all_gather", "layers.0/forward", n},
              {"0", "all_gather", "layers.1/forward", n});
}

TEST_CASE("A rank whose control flow changes while its gathers are ahead") {
  // In the second iteration both have gathered ahead what the first one recorded; the ways part in
  // backward, where the guess follows this forward.
  const int world_size = GENERATE(2, 3, 4);
  const Outcome outcome = run_failing(world_size, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.iteration(0);
    if (group.rank() == kCulprit) toy.model->order = {0, 2};
    toy.iteration(1);
  });
  check_ended(outcome, world_size, kCulprit, false);
  const std::string n = shard_numel(5, world_size);
  // 8 collectives in the first iteration, 3 gathers in the second.
  check_table(outcome, {"11", "all_gather", "layers.1/backward", n},
              {"11", "all_gather", "layers.0/backward", n});
}

TEST_CASE("A rank that skips the clip, and goes on") {
  const int world_size = GENERATE(2, 3, 4);
  const Outcome outcome = run_failing(world_size, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.sharded->attach_optimizer(
        [] { return std::make_shared<optim::Sgd>(optim::Sgd::Options{}); });
    for (int step = 0; step < 2; ++step) {
      toy.sharded->begin_step({});
      toy.loss(step).backward();
      toy.sharded->end_micro_step();
      toy.sharded->finish_gradients();
      if (group.rank() != kCulprit) toy.sharded->clip_grad_norm(1.0);
      toy.sharded->step(0.1);
      toy.sharded->zero_grad();
    }
  });
  check_ended(outcome, world_size, kCulprit, false);
  CHECK_THAT(outcome.error, contains("the operation of collective 8: all_reduce on rank 0, "
                                     "all_gather on rank 1"));
  check_table(outcome,
              {"8", "all_reduce", "grad_norm/optimizer", std::to_string(ExactSquareSum::kCounters)},
              {"8", "all_gather", "layers.0/forward", shard_numel(5, world_size)});
}

TEST_CASE("A rank whose model has another size") {
  const int world_size = GENERATE(2, 3, 4);
  const Outcome outcome = run_failing(world_size, [](ProcessGroup& group) {
    ToyConfig config;
    if (group.rank() == kCulprit) config.width = 6;
    ShardedToy toy(config, group);
    toy.iteration();
  });
  check_ended(outcome, world_size, kCulprit, false);
  CHECK_THAT(outcome.error, contains("the number of elements of collective 0"));
  check_table(outcome, {"0", "all_gather", "layers.0/forward", shard_numel(5, world_size)},
              {"0", "all_gather", "layers.0/forward", shard_numel(6, world_size)});
}

TEST_CASE("A rank whose model has another element type") {
  const int world_size = GENERATE(2, 3, 4);
  const Outcome outcome = run_failing(world_size, [](ProcessGroup& group) {
    const DType dtype = group.rank() == kCulprit ? DType::float64 : DType::float32;
    Toy model({});
    model.convert(dtype);
    const auto sharded = fully_shard(model, borrowed(group));
    sharded->begin_step({});
    toy_loss(model, 5, 0, group.rank(), dtype).backward();
    sharded->end_micro_step();
  });
  check_ended(outcome, world_size, kCulprit, false);
  CHECK_THAT(outcome.error, contains("the element type of collective 0: float32 on rank 0, "
                                     "float64 on rank 1"));
  const Expected call{"0", "all_gather", "layers.0/forward", shard_numel(5, world_size)};
  check_table(outcome, call, call);
}
