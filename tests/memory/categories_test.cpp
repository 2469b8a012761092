// The ten categories, each for itself, and how they flow from one into the other in a step.

#include "memory/real_training.h"
#include "support/catch.h"

#include <algorithm>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;
using nn::CallState;

namespace {

constexpr int kWorldSize = 3;

MemoryCase plain_case() {
  MemoryCase test_case;
  test_case.model = odd_model();
  test_case.options.recipe.ranks = kWorldSize;
  test_case.options.recipe.sharding.prefetch_depth = 0;
  return test_case;
}

/// n of a unit over three ranks.
std::int64_t shard_bytes(std::int64_t numel) { return 4 * ((numel + kWorldSize - 1) / kWorldSize); }

const std::int64_t kTable = 37 * 20;
const std::int64_t kBlock = 2 * 20 * 20 + 2 * 20 * 10 + 3 * 20 * 51 + 2 * 20;
const std::int64_t kHead = 37 * 20 + 20;

/// Σ n over all units, in bytes.
std::int64_t all_shards() {
  return shard_bytes(kTable) + 3 * shard_bytes(kBlock) + shard_bytes(kHead);
}

Breakdown at(const MicroStepMemory& memory, const std::string& module, CallState state) {
  const auto found = std::find_if(
      memory.snapshots.begin(), memory.snapshots.end(),
      [&](const MemorySnapshot& each) { return each.module == module && each.state == state; });
  REQUIRE(found != memory.snapshots.end());
  return found->bytes;
}

/// What came and went of a kind between two states of a module.
std::int64_t change(const MicroStepMemory& memory, const std::string& module, CallState from,
                    CallState to, MemoryKind kind) {
  return at(memory, module, to)[kind] - at(memory, module, from)[kind];
}

}  // namespace

TEST_CASE("Before training a rank holds its shards, the tables and the scratch, nothing else") {
  for (const MeasuredMemory& rank : measure(plain_case())) {
    Breakdown expected;
    expected[MemoryKind::sharded_param] = all_shards();
    expected[MemoryKind::buffer] = 2 * 7 * 1 * 4;  // cos, sin: T = 7, D/2 = 1
    expected[MemoryKind::temp] = 256 << 10;
    CHECK(to_string(rank.before) == to_string(expected));
  }
}

TEST_CASE("Optimizer state appears in the first step: eight bytes an element of the shards") {
  for (const MeasuredMemory& rank : measure(plain_case())) {
    for (const MemorySnapshot& each : rank.steps[0].micro_steps[0].snapshots) {
      REQUIRE(each.bytes[MemoryKind::optimizer] == 0);
    }
    CHECK(rank.before[MemoryKind::optimizer] == 0);
    CHECK(rank.steps[0].at_rest[MemoryKind::optimizer] == 2 * all_shards());
    CHECK(rank.steps[1].at_rest[MemoryKind::optimizer] == 2 * all_shards());
  }
}

TEST_CASE("After a step gradients are freed, and nothing is left of the activations") {
  for (const MeasuredMemory& rank : measure(plain_case())) {
    for (const StepMemory& step : rank.steps) {
      CHECK(step.at_rest[MemoryKind::sharded_grad] == 0);
      CHECK(step.at_rest[MemoryKind::unsharded_grad] == 0);
      CHECK(step.at_rest[MemoryKind::unsharded_param] == 0);
      CHECK(step.at_rest[MemoryKind::activation] == 0);
      CHECK(step.at_rest[MemoryKind::reduce_scatter] == 0);
      CHECK(step.at_rest[MemoryKind::temp] == 256 << 10);
      CHECK(step.step_peak[MemoryKind::sharded_grad] == all_shards());
    }
  }
}

TEST_CASE("A gather lands in the unsharded parameters: no buffer of its own") {
  for (const MeasuredMemory& rank : measure(plain_case())) {
    for (const StepMemory& step : rank.steps) {
      for (const MemorySnapshot& each : step.micro_steps[0].snapshots) {
        REQUIRE(each.bytes[MemoryKind::all_gather] == 0);
      }
      CHECK(step.micro_steps[0].forward_peak[MemoryKind::all_gather] == 0);
      CHECK(step.micro_steps[0].backward_peak[MemoryKind::all_gather] == 0);
    }
  }
}

TEST_CASE("Forward: gathered before, resharded after, activations in between") {
  const std::string block = "model.layers.1";
  for (const MeasuredMemory& rank : measure(plain_case())) {
    const MicroStepMemory& memory = rank.steps[1].micro_steps[0];
    const auto delta = [&](CallState from, CallState to, MemoryKind kind) {
      return change(memory, block, from, to, kind);
    };
    const auto before = CallState::before_pre_forward, gathered = CallState::after_pre_forward,
               computed = CallState::before_post_forward, after = CallState::after_post_forward;
    const std::int64_t full = kWorldSize * shard_bytes(kBlock);
    CHECK(delta(before, gathered, MemoryKind::unsharded_param) == full);
    CHECK(delta(before, gathered, MemoryKind::sharded_param) == 0);
    CHECK(delta(gathered, computed, MemoryKind::activation) > 0);
    CHECK(delta(gathered, computed, MemoryKind::unsharded_param) == 0);
    CHECK(delta(gathered, computed, MemoryKind::temp) == 0);
    CHECK(delta(computed, after, MemoryKind::unsharded_param) == -full);
    CHECK(delta(computed, after, MemoryKind::activation) == 0);
  }
}

TEST_CASE("Backward: gathered again, gradient made, reduced into a shard") {
  const std::string block = "model.layers.1";
  for (const MeasuredMemory& rank : measure(plain_case())) {
    const MicroStepMemory& memory = rank.steps[1].micro_steps[0];
    const auto delta = [&](CallState from, CallState to, MemoryKind kind) {
      return change(memory, block, from, to, kind);
    };
    const auto before = CallState::before_pre_backward, gathered = CallState::after_pre_backward,
               computed = CallState::before_post_backward, after = CallState::after_post_backward;
    const std::int64_t shard = shard_bytes(kBlock), full = kWorldSize * shard;
    CHECK(delta(before, gathered, MemoryKind::unsharded_param) == full);
    CHECK(delta(before, gathered, MemoryKind::unsharded_grad) == full);
    CHECK(delta(gathered, computed, MemoryKind::activation) < 0);
    CHECK(delta(gathered, computed, MemoryKind::temp) == 0);  // d(output) in, d(input) out
    CHECK(delta(computed, after, MemoryKind::unsharded_param) == -full);
    // layers.2, an equal unit, was being reduced: its gradient goes, this one's stays.
    CHECK(delta(computed, after, MemoryKind::unsharded_grad) == -full);
    CHECK(delta(computed, after, MemoryKind::sharded_grad) == shard);
    CHECK(at(memory, block, after)[MemoryKind::reduce_scatter] == shard);
    CHECK(at(memory, block, after)[MemoryKind::unsharded_grad] == full);
  }
}

TEST_CASE("Every unit passes eight states in an iteration, in order") {
  const std::vector<std::string> modules{"model.embed_tokens", "model.layers.0",
                                         "model.layers.1",     "model.layers.2",
                                         "model.norm+lm_head", "root"};
  for (const MeasuredMemory& rank : measure(plain_case())) {
    for (const StepMemory& step : rank.steps) {
      const auto& snapshots = step.micro_steps[0].snapshots;
      CHECK(snapshots.size() == modules.size() * nn::kCallStates);
      for (const std::string& module : modules) {
        int next = 0;
        for (const MemorySnapshot& each : snapshots) {
          if (each.module == module) CHECK(static_cast<int>(each.state) == next++);
        }
        CHECK(next == nn::kCallStates);
      }
    }
  }
}

TEST_CASE("The categories sum to the total, and the log replays to the peak") {
  Context context({.seed = 1});
  ContextScope scope(context);
  context.tracker().set_logging(true);
  nn::TransformerLM model(nn::TransformerConfig::nano());
  const Breakdown peak = context.tracker().peak();
  CHECK(peak.total() == context.tracker().peak_total());
  CHECK(replay_peak(context.tracker().log()) == peak);
}

TEST_CASE("A removed instrument leaves no trace: the peaks are those of a recorded run") {
  MemoryCase bare = plain_case();
  bare.records = false;
  const std::vector<MeasuredMemory> recorded = measure(plain_case());
  const std::vector<MeasuredMemory> unrecorded = measure(bare);
  for (std::size_t rank = 0; rank < recorded.size(); ++rank) {
    for (std::size_t step = 0; step < recorded[rank].steps.size(); ++step) {
      const MicroStepMemory& with = recorded[rank].steps[step].micro_steps[0];
      const MicroStepMemory& without = unrecorded[rank].steps[step].micro_steps[0];
      CHECK(with.snapshots.size() == 48);
      CHECK(without.snapshots.empty());
      CHECK(with.forward_peak == without.forward_peak);
      CHECK(with.backward_peak == without.backward_peak);
    }
  }
}
