// Sweeps: what halves when W doubles, what stays when R does, and the texts and pictures of them.
#include "plan/sweep.h"
#include "paper/memory_formula.h"
#include "plan/planner.h"
#include "support/catch.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace fsdp::testing::sweeps {
namespace {

using paper::MemoryOptions;
using plan::Evaluator;
using plan::make_sweep;
using plan::parse_sweep;
using plan::Sweep;
using plan::SweepPoint;

constexpr CostModel kMachine{
    .ps_per_flop = 1, .ps_per_byte = 2, .alpha_ps = 1000, .link_ps_per_byte = 10};

const MemoryOptions kSharded{.recipe = {.strategy = optim::Strategy::fsdp}};

// Every unit of nano has a number of elements that 16 divides.
Sweep sweep_of(const std::string& text, const MemoryOptions& base) {
  Evaluator evaluator(nn::TransformerConfig::nano(), kMachine);
  return make_sweep(evaluator, "nano", base, parse_sweep(text));
}

}  // namespace

TEST_CASE("A sweep of W halves what is sharded") {
  const Sweep sweep = sweep_of("world=1..16", kSharded);
  REQUIRE(sweep.points.size() == 5);
  for (std::size_t i = 1; i < sweep.points.size(); ++i) {
    const Breakdown& before = sweep.points[i - 1].outcome.device;
    const Breakdown& now = sweep.points[i].outcome.device;
    for (const MemoryKind kind : {MemoryKind::sharded_param, MemoryKind::optimizer}) {
      CHECK(now[kind] > 0);
      CHECK(2 * now[kind] == before[kind]);
    }
  }
}

TEST_CASE("A sweep of R leaves what is sharded, and so does one of the batch") {
  MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
  base.recipe.ranks = 4;
  for (const std::string text : {"replicas=1..8", "batch=1..8", "prefetch=1..4", "seq_len=1..8"}) {
    const Sweep sweep = sweep_of(text, base);
    REQUIRE(sweep.points.size() >= 3);
    for (const SweepPoint& point : sweep.points) {
      const Breakdown& first = sweep.points.front().outcome.device;
      CHECK(point.outcome.device[MemoryKind::sharded_param] == first[MemoryKind::sharded_param]);
      CHECK(point.outcome.device[MemoryKind::optimizer] == first[MemoryKind::optimizer]);
      CHECK(point.outcome.options.recipe.shards() == 4);
    }
  }
}

TEST_CASE("Two numbers are swept together, the last one fastest") {
  const Sweep sweep = sweep_of("world=2..4,batch=1..4", kSharded);
  REQUIRE(sweep.points.size() == 6);
  CHECK(sweep.points[1].values == std::vector<std::int64_t>{2, 2});
  CHECK(sweep.points[3].values == std::vector<std::int64_t>{4, 1});
  MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.ranks = 4;
  CHECK(sweep.points[3].outcome.device ==
        paper::MemoryFormula(nn::TransformerConfig::nano(), options).peak(2));
}

TEST_CASE(
    "W is the total where replicas are swept beside it, and shown where it follows from them") {
  MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
  base.recipe.ranks = 4;
  for (const std::string text : {"world=8..16,replicas=1..4", "replicas=1..4,world=8..16"}) {
    const Sweep sweep = sweep_of(text, base);
    REQUIRE(sweep.points.size() == 6);
    const bool is_world_first = sweep.axes[0].key == "world";
    for (const SweepPoint& point : sweep.points) {
      CHECK(point.outcome.options.recipe.ranks == point.values[is_world_first ? 0 : 1]);
      CHECK(point.outcome.options.recipe.replicas == point.values[is_world_first ? 1 : 0]);
    }
  }
  const Sweep alone = sweep_of("replicas=1..4", base);
  CHECK(alone.points.back().outcome.options.recipe.ranks == 16);
  CHECK_THAT(sweep_text(alone), contains(" replicas    world"));
  CHECK_THAT(sweep_json(alone), contains("\"world\": 16"));
  CHECK_THROWS_WITH(sweep_of("world=2,replicas=4", base), contains("world = 2, replicas = 4"));
  CHECK_THROWS_WITH(sweep_of("replicas=1048576", base), contains("more than 1048576 ranks"));
}

TEST_CASE("A sweep is shown as a table, as JSON and as a picture") {
  const Sweep sweep = sweep_of("world=2..8", kSharded);
  const std::string text = sweep_text(sweep);
  for (const char* part : {"world", "step", "SHARDED_PARAM", "ACTIVATION"}) {
    CHECK_THAT(text, contains(part));
  }
  const std::string json = sweep_json(sweep);
  CHECK_THAT(json, contains("\"world\": 8"));
  const paper::StepTime& time = sweep.points.front().outcome.time;
  const std::int64_t gathers = time.split[paper::TimePart::gathers];
  CHECK(gathers > 0);
  CHECK_THAT(json, contains(fmt::format("\"gathers\": {}", gathers)));
  CHECK_THAT(json, contains(fmt::format("\"transfer_ps\": {}", time.channels.transfer)));
  const std::string svg = sweep_svg(sweep);
  CHECK_THAT(svg, contains("nano: memory and step time over world"));
  CHECK_THAT(svg, contains("class=\"sharded_param\""));
  CHECK_THAT(svg, contains("time of a step"));
}

TEST_CASE("Resharding holds less, and keeping parameters takes less time, on one picture") {
  MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
  base.recipe.ranks = 4;
  base.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);  // replaced
  const Sweep sweep = sweep_of("reshard", base);
  REQUIRE(sweep.points.size() == 2);
  const plan::Outcome& always = sweep.points[0].outcome;
  const plan::Outcome& never = sweep.points[1].outcome;
  CHECK(always.options.recipe.sharding.reshard_after_forward == ReshardAfterForward::always());
  CHECK(never.options.recipe.sharding.reshard_after_forward == ReshardAfterForward::never());
  CHECK(always.memory() < never.memory());
  CHECK(always.step() > never.step());
  CHECK_THAT(sweep_text(sweep), contains("\n   always"));
  CHECK_THAT(sweep_text(sweep), contains("\n    never"));
  CHECK_THAT(sweep_json(sweep), contains("\"reshard\": \"never\""));
  CHECK_THAT(sweep_svg(sweep), contains(">always</text>"));
  CHECK_THAT(sweep_svg(sweep), contains(">never</text>"));
  CHECK(sweep_of("reshard,batch=1..2", base).points.size() == 4);
  CHECK_THROWS_WITH(parse_sweep("reshard=1..2"), contains("or reshard alone"));
}

TEST_CASE("A sweep that cannot be made says why") {
  CHECK_THROWS_WITH(parse_sweep("worlds=1..2"), contains("no sweep"));
  CHECK_THROWS_WITH(parse_sweep("world=4..2"), contains("must go up"));
  CHECK_THROWS_WITH(parse_sweep("world=x"), contains("not a whole number"));
  CHECK_THROWS_WITH(parse_sweep("world=1..2,world=1..2"), contains("two different ones"));
  CHECK_THROWS_WITH(sweep_of("seq_len=8..16", {}), contains("seq_len = 16"));
}

}  // namespace fsdp::testing::sweeps
