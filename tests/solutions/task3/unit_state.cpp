// Task 3: the two halves of unshard, reshard, and what they leave behind.
#include "comm/decorators.h"
#include "support/catch.h"
#include "support/reshard.h"
#include "support/toy.h"
#include "task3_forward/forward.h"
#include "tensor/ops.h"

#include <memory>
#include <optional>
#include <string>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

using State = ShardedUnit::State;

/// A unit of one layer, with 30 elements in one flat parameter, built by hand.
struct OneUnit {
  explicit OneUnit(ProcessGroup& group, ReshardAfterForward reshard = ReshardAfterForward::always(),
                   bool keep_until_backward = false)
      : toy({.layers = 1}) {
    nn::Module& layer = *toy.layers()[0];
    for (const nn::NamedParameter& each : layer.named_parameters()) {
      const auto values = each.variable.data().to_vector<float>();
      expected.insert(expected.end(), values.begin(), values.end());
    }
    std::vector<std::unique_ptr<FlatParameter>> flats;
    flats.push_back(std::make_unique<FlatParameter>("layer", layer.named_parameters(), group.rank(),
                                                    group.size(), kCpu, copy_slice));
    std::shared_ptr<ProcessGroup> subgroup;
    if (reshard.ranks > 1) subgroup = group.split_contiguous(reshard.ranks);
    unit = std::make_unique<ShardedUnit>(
        "layer", layer, std::move(flats), borrowed(group), subgroup,
        ShardedUnit::Options{.reshard_after_forward = reshard,
                             .keep_until_backward = keep_until_backward});
  }
  const FlatParameter& flat() const { return *unit->flat_parameters()[0]; }
  bool is_allocated() const { return flat().full().storage()->is_allocated(); }
  /// The full parameters are there, with the values the model was built with.
  bool is_right() const {
    if (!is_allocated()) return false;
    std::vector<float> values = flat().full().to_vector<float>();
    values.resize(expected.size());
    return values == expected;
  }

  Toy toy;
  std::vector<float> expected;
  std::unique_ptr<ShardedUnit> unit;
};

Tensor input() { return noise({2, 5}, 99); }

}  // namespace

TEST_CASE("The states of a unit", "[3.1][3.2][3.3]") {
  const int world_size = GENERATE(1, 2, 3, 4);
  run_ranks(world_size, [](ProcessGroup& group) {
    OneUnit one(group);
    ShardedUnit& unit = *one.unit;
    FSDP_CHECK(unit.state() == State::sharded && !one.is_allocated(), "a new unit is sharded");
    for (int round = 0; round < 2; ++round) {
      unit.start_unshard(Phase::forward);
      FSDP_CHECK(unit.state() == State::unsharding && one.is_allocated(), "after start_unshard");
      unit.finish_unshard(Phase::forward);
      FSDP_CHECK(unit.state() == State::unsharded && one.is_right(), "after finish_unshard");
      unit.reshard();
      FSDP_CHECK(unit.state() == State::sharded && !one.is_allocated(), "after reshard");
    }
    unit.finish_unshard(Phase::forward);  // without the first half
    FSDP_CHECK(unit.state() == State::unsharded && one.is_right(), "finish_unshard alone");
    unit.reshard();
    unit.start_unshard(Phase::forward);
    unit.reshard();  // in flight: waited for, then freed
    FSDP_CHECK(unit.state() == State::sharded && !one.is_allocated(), "reshard in flight");
  });
  SUCCEED();
}

TEST_CASE("Both halves and reshard are idempotent", "[3.1][3.2][3.3]") {
  const int world_size = GENERATE(1, 2, 3);
  const auto lines =
      on_ranks({.world_size = world_size, .record_trace = true}, [](ProcessGroup& group) {
        OneUnit one(group);
        ShardedUnit& unit = *one.unit;
        Context::current().trace().clear();
        for (int i = 0; i < 3; ++i) unit.start_unshard(Phase::forward);
        for (int i = 0; i < 3; ++i) unit.finish_unshard(Phase::backward);
        unit.start_unshard(Phase::backward);
        FSDP_CHECK(one.is_right(), "the parameters changed");
        for (int i = 0; i < 3; ++i) unit.reshard();
        return Context::current().trace().lines();
      });
  for (const auto& of_rank : lines) {
    CHECK(of_rank ==
          std::vector<std::string>{"alloc unsharded_param layer", "issue all_gather layer/forward",
                                   "wait all_gather layer/forward", "free unsharded_param layer"});
  }
}

TEST_CASE("The first half does not wait, and says what it gathers for", "[3.1]") {
  const Phase phase = GENERATE(Phase::forward, Phase::backward);
  const auto lines = on_ranks({.world_size = 2, .record_trace = true}, [&](ProcessGroup& group) {
    OneUnit one(group);
    Trace& trace = Context::current().trace();
    trace.clear();
    one.unit->start_unshard(phase);
    const auto first_half = trace.lines();
    trace.clear();
    one.unit->finish_unshard(phase);
    return std::vector{first_half, trace.lines()};
  });
  const std::string label = "layer/" + std::string(name_of(phase));
  CHECK(lines[0][0] ==
        std::vector<std::string>{"alloc unsharded_param layer", "issue all_gather " + label});
  CHECK(lines[0][1] == std::vector<std::string>{"wait all_gather " + label});
}

TEST_CASE("The wire carries (W - 1) n elements a gather, and memory returns to the floor",
          "[3.1][3.3]") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const std::int64_t n = (30 + world_size - 1) / world_size;
  std::vector<std::shared_ptr<CollectiveLog>> ledgers;
  for (int i = 0; i < world_size; ++i) ledgers.push_back(std::make_shared<CollectiveLog>());
  RankOptions options{.world_size = world_size};
  options.decorate = [&](std::shared_ptr<Backend> backend) {
    const auto rank = static_cast<std::size_t>(backend->rank());
    return make_recording(std::move(backend), ledgers[rank]);
  };
  run_ranks(options, [&](ProcessGroup& group) {
    OneUnit one(group);
    const MemoryTracker& tracker = Context::current().tracker();
    const Breakdown floor = tracker.current();
    FSDP_CHECK(floor[MemoryKind::sharded_param] == 4 * n, "a shard is n elements");
    one.unit->finish_unshard(Phase::forward);
    FSDP_CHECK(tracker.current()[MemoryKind::unsharded_param] ==
                   floor[MemoryKind::unsharded_param] + 4 * n * group.size(),
               "the full parameters are P elements");
    FSDP_CHECK(tracker.current().total() == floor.total() + 4 * n * group.size(),
               "and nothing else");
    one.unit->reshard();
    FSDP_CHECK(tracker.current() == floor, "{} is held after reshard, {} before",
               to_string(tracker.current()), to_string(floor));
  });
  for (const auto& ledger : ledgers) {
    REQUIRE(ledger->entries().size() == 1);
    CHECK(ledger->entries()[0].op == CollectiveOp::all_gather);
    CHECK(ledger->entries()[0].numel == n);
    CHECK(ledger->received_bytes() == (world_size - 1) * n * 4);
  }
}

TEST_CASE("Within groups of two, half is kept and the rest comes from the neighbor", "[3.4]") {
  std::vector<std::shared_ptr<CollectiveLog>> ledgers;
  for (int i = 0; i < 4; ++i) ledgers.push_back(std::make_shared<CollectiveLog>());
  RankOptions options{.world_size = 4};
  options.decorate = [&](std::shared_ptr<Backend> backend) {
    const auto rank = static_cast<std::size_t>(backend->rank());
    return make_recording(std::move(backend), ledgers[rank]);
  };
  run_ranks(options, [&](ProcessGroup& group) {
    OneUnit one(group, ReshardAfterForward::within(2));  // N = 30, P = 32
    const MemoryTracker& tracker = Context::current().tracker();
    const std::int64_t floor = tracker.current_total();
    one.unit->reshard_to_subgroup();  // nothing is there: nothing happens
    FSDP_CHECK(tracker.current_total() == floor, "kept a part of nothing");
    one.unit->finish_unshard(Phase::forward);
    one.unit->reshard_to_subgroup();
    FSDP_CHECK(one.unit->state() == State::sharded && !one.is_allocated(), "not resharded");
    FSDP_CHECK(tracker.current_total() == floor + 4 * 16, "{} bytes are kept",
               tracker.current_total() - floor);
    one.unit->finish_unshard(Phase::backward);
    FSDP_CHECK(one.is_right(), "the halves were put together wrongly");
    FSDP_CHECK(tracker.current_total() == floor + 4 * 32, "the kept half stayed");
    one.unit->reshard();
    FSDP_CHECK(tracker.current_total() == floor, "something stayed");

    // What is kept goes with a plain reshard, too: after a step it would be stale.
    one.unit->finish_unshard(Phase::forward);
    one.unit->reshard_to_subgroup();
    one.unit->reshard();
    FSDP_CHECK(tracker.current_total() == floor, "the half stayed");
    one.unit->finish_unshard(Phase::forward);
    FSDP_CHECK(one.is_right(), "gathered from what is gone");
  });
  for (const auto& ledger : ledgers) {
    std::vector<std::int64_t> received;
    for (const CollectiveRecord& entry : ledger->entries())
      received.push_back(entry.received_bytes);
    // Forward from all: 3 n. Backward from the neighbor: P / 2.
    CHECK(received == std::vector<std::int64_t>{3 * 8 * 4, 16 * 4, 3 * 8 * 4, 3 * 8 * 4});
  }
}

TEST_CASE("Which values of reshard_after_forward fit", "[3.4]") {
  const auto message = [](int s, int world_size) {
    return message_of<Error>([&] { ReshardAfterForward::within(s).validate(world_size); });
  };
  for (const int world_size : {1, 2, 3, 4, 6, 8}) {
    for (const auto& any : {ReshardAfterForward::always(), ReshardAfterForward::never()}) {
      CHECK_NOTHROW(any.validate(world_size));
    }
    for (int s = -1; s <= 9; ++s) {
      const bool fits = s > 1 && s < world_size && world_size % s == 0;
      CAPTURE(s, world_size);
      CHECK((message(s, world_size) == "") == fits);
    }
  }
  CHECK_THAT(message(2, 3), contains("reshard_after_forward = 2 does not fit 3 ranks"));
  CHECK_THAT(message(3, 4), contains("divides 4"));
}

TEST_CASE("A sharded model refuses an integer that does not fit, on every rank", "[3.4]") {
  const int world_size = GENERATE(1, 2, 3);
  const auto messages = on_ranks(world_size, [](ProcessGroup& group) {
    FullyShardOptions options;
    options.reshard_after_forward = ReshardAfterForward::within(2);
    return message_of<Error>([&] { const ShardedToy toy({}, group, options); });
  });
  for (const std::string& message : messages) CHECK_THAT(message, contains("does not fit"));
}

TEST_CASE("The hooks bring the parameters and take them away", "[3.5]") {
  const int world_size = GENERATE(1, 2, 3);
  run_ranks(world_size, [](ProcessGroup& group) {
    Toy plain({.layers = 1});
    Context::current().generator().set_offset(0);
    const Tensor expected = plain(Variable(input())).data();
    for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never()}) {
      for (const bool keep : {false, true}) {
        for (const bool with_tape : {false, true}) {
          Context::current().generator().set_offset(0);
          OneUnit one(group, reshard, keep);
          one.unit->install_hooks();
          std::optional<NoGradScope> no_grad;
          if (!with_tape) no_grad.emplace();
          const Variable y = one.toy(Variable(input()));
          FSDP_CHECK(ops::equal_bits(y.data(), expected), "not the bits of the plain module");
          const bool stays =
              with_tape && (keep || reshard.kind == ReshardAfterForward::Kind::never);
          FSDP_CHECK(one.unit->state() == (stays ? State::unsharded : State::sharded),
                     "reshard {}, keep {}, tape {}: the unit is in the wrong state",
                     number_of(reshard), keep, with_tape);
        }
      }
    }
  });
  SUCCEED();
}

TEST_CASE("Hooks go with the unit", "[3.5]") {
  run_ranks(2, [](ProcessGroup& group) {
    OneUnit one(group);
    one.unit->install_hooks();
    one.unit->finish_unshard(Phase::forward);
    const Tensor data = one.flat().full();
    one.unit->reshard();
    one.unit = nullptr;
    Context::current().trace().set_recording(true);
    const std::string message = message_of<StorageError>([&] { one.toy(Variable(input())); });
    FSDP_CHECK(message.find("layer") != std::string::npos, "no error that names the unit");
    FSDP_CHECK(Context::current().trace().lines({EventKind::issue}).empty(), "a hook still ran");
  });
  SUCCEED();
}

namespace {

/// Notes what it is told.
class Notes : public UnshardScheduler {
 public:
  void before_forward(ShardedUnit& unit) override {
    seen.push_back(unit.name());
    FSDP_CHECK(unit.state() == State::unsharded, "told before the parameters are there");
  }
  void before_backward(ShardedUnit&) override {}
  std::vector<std::string> seen;
};

}  // namespace

TEST_CASE("The scheduler hears of a unit when its parameters are there", "[3.5]") {
  const auto seen = on_ranks(2, [](ProcessGroup& group) {
    OneUnit one(group);
    Notes notes;
    one.unit->scheduler = &notes;
    one.unit->install_hooks();
    one.toy(Variable(input()));
    return notes.seen;
  });
  CHECK(seen[0] == std::vector<std::string>{"layer"});
}
