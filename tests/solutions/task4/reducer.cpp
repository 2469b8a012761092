// Task 4: what is held during backward, what goes over the wire, and what is left afterwards.
#include "comm/decorators.h"
#include "support/catch.h"
#include "support/reshard.h"
#include "support/toy.h"
#include "tensor/ops.h"

#include <algorithm>
#include <map>
#include <memory>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// n of a unit of a Toy of the given width.
std::int64_t shard_numel(std::int64_t width, int world_size) {
  return (width * width + width + world_size - 1) / world_size;
}

/// Nothing of a backward is left but sharded gradients.
void check_clean(const ShardedModel& model) {
  for (const auto& unit : model.units()) {
    FSDP_CHECK(unit->state() == ShardedUnit::State::sharded, "{} is not sharded", unit->name());
    for (const auto& flat : unit->flat_parameters()) {
      FSDP_CHECK(!flat->full().storage()->is_allocated(), "{} holds parameters", unit->name());
      FSDP_CHECK(!flat->requires_grad() || !flat->full_grad().storage()->is_allocated(),
                 "{} holds a full gradient", unit->name());
    }
  }
  const Breakdown& held = Context::current().tracker().current();
  for (const MemoryKind kind :
       {MemoryKind::unsharded_param, MemoryKind::unsharded_grad, MemoryKind::reduce_scatter}) {
    FSDP_CHECK(held[kind] == 0, "after backward: {}", to_string(held));
  }
}

/// The most bytes of `kind` at any moment of a log.
std::int64_t most_of(MemoryKind kind, const std::vector<MemoryTracker::LogEntry>& log) {
  using What = MemoryTracker::LogEntry::What;
  std::map<MemoryTracker::BlockId, MemoryTracker::LogEntry> alive;
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const MemoryTracker::LogEntry& entry : log) {
    const auto before = alive.find(entry.block);
    if (before != alive.end() && before->second.kind == kind) held -= before->second.nbytes;
    if (entry.what == What::free) {
      alive.erase(entry.block);
      continue;
    }
    alive[entry.block] = entry;
    if (entry.kind == kind) held += entry.nbytes;
    most = std::max(most, held);
  }
  return most;
}

struct Held {
  std::int64_t unsharded_grad = 0;
  std::int64_t reduce_scatter = 0;
};

Held most_held(int world_size, const ToyConfig& config, const std::vector<int>& order) {
  return on_ranks(world_size,
                  [&](ProcessGroup& group) {
                    ShardedToy toy(config, group);
                    toy.model->order = order;
                    MemoryTracker& tracker = Context::current().tracker();
                    tracker.set_logging(true);
                    toy.iteration(0);
                    toy.iteration(1);
                    return Held{most_of(MemoryKind::unsharded_grad, tracker.log()),
                                most_of(MemoryKind::reduce_scatter, tracker.log())};
                  })
      .front();
}

}  // namespace

TEST_CASE("After every backward every unit is sharded and no gradient is whole", "[4.5][4.6]") {
  const std::vector<ToyConfig> configs = {
      {},
      {.root_weight = true},
      {.tied = true},
      {.frozen = {"layers.0"}},
      {.frozen = {"layers.1"}},
      {.frozen = {"layers.2"}},
      {.unused = true, .nested = true},
  };
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2}, {2, 1}, {0, 1, 0, 2}, {1, 2, 1}};
  const ToyConfig config = GENERATE_COPY(from_range(configs));
  const int group = GENERATE(0, 1, 2);
  for (const std::vector<int>& order : orders) {
    ToyRun run;
    run.model = config;
    run.micro_batches = 8;
    run.steps = 2;
    run.order = [&](int) { return order; };
    run.sharding.reshard_after_forward = reshard_of(group);
    run.after_backward = [](Toy&, ShardedModel& model) { check_clean(model); };
    run_sharded(run, 4);
  }
  SUCCEED();
}

TEST_CASE("Never more than two full gradients exist", "[4.5][4.4]") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const std::int64_t n = shard_numel(6, world_size);
  const Held held = most_held(world_size, {.width = 6, .layers = 6}, {0, 1, 2, 3, 4, 5});
  CHECK(held.unsharded_grad == 2 * 4 * n * world_size);
  CHECK(held.reduce_scatter == 4 * n);  // and one leaf on its way
}

TEST_CASE("Units that backward does not reach send their zeros one after the other", "[4.6]") {
  const std::int64_t n = shard_numel(6, 2);
  const Held held = most_held(2, {.width = 6, .layers = 6}, {2});
  CHECK(held.unsharded_grad == 2 * 4 * n * 2);
  CHECK(held.reduce_scatter == 4 * n);
}

TEST_CASE("One reduction a unit and backward, of (W - 1) n elements, under no_sync one a group",
          "[4.3]") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const int per_reduction = GENERATE(1, 2, 4);
  std::vector<std::shared_ptr<CollectiveLog>> ledgers;
  for (int i = 0; i < world_size; ++i) ledgers.push_back(std::make_shared<CollectiveLog>());
  RankOptions options{.world_size = world_size};
  options.decorate = [&](std::shared_ptr<Backend> backend) {
    const auto rank = static_cast<std::size_t>(backend->rank());
    return make_recording(std::move(backend), ledgers[rank]);
  };
  run_ranks(options, [&](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.sharded->begin_step({4, per_reduction});
    for (int m = 0; m < 4; ++m) {
      toy.loss(m).backward();
      toy.sharded->end_micro_step();
    }
    toy.sharded->finish_gradients();
  });
  const std::int64_t n = shard_numel(5, world_size);
  for (const auto& ledger : ledgers) {
    std::int64_t reductions = 0;
    for (const CollectiveRecord& entry : ledger->entries()) {
      if (entry.op != CollectiveOp::reduce_scatter) continue;
      ++reductions;
      CHECK(entry.numel == n);
      CHECK(entry.received_bytes == (world_size - 1) * n * 4);
      CHECK(entry.label.phase == Phase::gradient);
    }
    CHECK(reductions == 3 * 4 / per_reduction);
    // Gathers: three forward and two backward a micro-step.
    CHECK(static_cast<std::int64_t>(ledger->entries().size()) == reductions + 5 * 4);
  }
}

TEST_CASE("A frozen unit sends no gradient, and is gathered where backward passes through it",
          "[4.5]") {
  const auto lines = on_ranks(2, [](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = 0;
    ShardedToy toy({.frozen = {"layers.0", "layers.2"}}, group, options);
    Context::current().trace().set_recording(true);
    toy.iteration();
    return Context::current().trace().lines({EventKind::issue});
  });
  CHECK(lines[0] == std::vector<std::string>{
                        "issue all_gather layers.0/forward", "issue all_gather layers.1/forward",
                        "issue all_gather layers.2/forward", "issue all_gather layers.1/backward",
                        "issue reduce_scatter layers.1/gradient"});
}

TEST_CASE("Padding is +0 after the reduction, whatever was there", "[4.2]") {
  // Fresh bytes are NaN in test programs, so the padding of every full gradient is poisoned.
  REQUIRE(fills_fresh_memory());
  const int world_size = GENERATE(2, 3, 4, 7);
  const std::int64_t width = GENERATE(1, 3, 5);
  run_ranks(world_size, [&](ProcessGroup& group) {
    ShardedToy toy({.width = width}, group);
    toy.sharded->begin_step({});
    toy.loss().backward();
    toy.sharded->end_micro_step();
    toy.sharded->finish_gradients();
    for (const auto& unit : toy.sharded->units()) {
      const FlatParameter& flat = *unit->flat_parameters()[0];
      const std::int64_t valid = flat.valid_shard_numel();
      const std::int64_t padding = flat.shard_numel() - valid;
      FSDP_CHECK(
          ops::equal_bits(flat.shard_grad().narrow(0, valid, padding), Tensor::zeros({padding})),
          "{}: padding is not +0", unit->name());
      FSDP_CHECK(ops::all_finite(flat.shard_grad()), "{}: not finite", unit->name());
    }
  });
  SUCCEED();
}

TEST_CASE("Gradients exist between finish_gradients and zero_grad", "[4.7]") {
  run_ranks(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    const FlatParameter& flat = *toy.sharded->units()[0]->flat_parameters()[0];
    const MemoryTracker& tracker = Context::current().tracker();
    toy.sharded->begin_step({});
    toy.loss().backward();
    toy.sharded->end_micro_step();
    FSDP_CHECK(!flat.shard_grad().is_defined(), "a gradient before finish_gradients");
    toy.sharded->finish_gradients();
    FSDP_CHECK(flat.shard_grad().shape() == Shape{15}, "no gradient after finish_gradients");
    FSDP_CHECK(tracker.current()[MemoryKind::sharded_grad] == 3 * 4 * 15, "not three shards");
    toy.sharded->zero_grad();
    FSDP_CHECK(!flat.shard_grad().is_defined(), "a gradient after zero_grad");
    FSDP_CHECK(tracker.current()[MemoryKind::sharded_grad] == 0, "zero_grad freed nothing");
  });
  SUCCEED();
}

TEST_CASE("finish_gradients wants all micro-steps, and a plan wants L to divide M", "[4.7]") {
  run_ranks(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    const auto finish = [&] { toy.sharded->finish_gradients(); };
    toy.sharded->begin_step({2, 1});
    toy.loss(0).backward();
    toy.sharded->end_micro_step();
    const std::string early = message_of<Error>(finish);
    FSDP_CHECK(early.find("1 of 2 micro-steps") != std::string::npos, "early: '{}'", early);
    toy.loss(1).backward();
    toy.sharded->end_micro_step();
    finish();
    const std::string again = message_of<Error>(finish);
    FSDP_CHECK(again.find("0 of 2 micro-steps") != std::string::npos, "again: '{}'", again);
    const std::string odd = message_of<Error>([&] { toy.sharded->begin_step({3, 2}); });
    FSDP_CHECK(odd.find("divide") != std::string::npos, "a plan of 3 and 2: '{}'", odd);
  });
  SUCCEED();
}

TEST_CASE("begin_step recovers from a backward that failed", "[4.1]") {
  const int layer = GENERATE(0, 1, 2);
  const bool no_sync = GENERATE(false, true);
  const auto seen = on_ranks(2, [&](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.iteration(0);
    nn::Module& module = *toy.model->layers()[static_cast<std::size_t>(layer)];
    const int hook = module.register_full_backward_hook([](nn::Module&) { fail("no power"); });
    toy.sharded->begin_step({2, no_sync ? 2 : 1});
    const std::string message = message_of<Error>([&] { toy.loss(1).backward(); });
    FSDP_CHECK(message == "no power", "'{}'", message);
    module.remove_hook(hook);
    toy.sharded->begin_step({});
    check_clean(*toy.sharded);
    toy.loss(2).backward();
    toy.sharded->end_micro_step();
    toy.sharded->finish_gradients();
    const FlatParameter& flat = *toy.sharded->units()[1]->flat_parameters()[0];
    return flat.shard_grad().to_vector<float>();
  });
  const auto expected = on_ranks(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.sharded->begin_step({});
    toy.loss(2).backward();
    toy.sharded->end_micro_step();
    toy.sharded->finish_gradients();
    const FlatParameter& flat = *toy.sharded->units()[1]->flat_parameters()[0];
    return flat.shard_grad().to_vector<float>();
  });
  CHECK(seen == expected);
}

TEST_CASE("Hooks go with the sharded model", "[4.1]") {
  run_ranks(2, [](ProcessGroup& group) {
    ShardedToy toy({}, group);
    toy.iteration();
    toy.sharded = nullptr;
    Context::current().trace().set_recording(true);
    const std::string message = message_of<StorageError>([&] { toy.loss(); });
    FSDP_CHECK(message.find("layers.0") != std::string::npos, "'{}'", message);
    FSDP_CHECK(Context::current().trace().lines({EventKind::issue}).empty(), "a hook still ran");
  });
  SUCCEED();
}
