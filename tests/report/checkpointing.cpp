// What activation checkpointing does to a picture.
#include "report/run_record.h"
#include "report/runs.h"
#include "support/catch.h"

#include <cstdint>

namespace fsdp::testing {
namespace {

using report::RankRecord;

TEST_CASE("checkpointed blocks compute their forward once more, to the picosecond", "[report]") {
  const auto record = [](optim::Strategy strategy, bool checkpoints) {
    report::ShortRun run;
    run.model = nn::TransformerConfig::nano();
    run.recipe.strategy = strategy;
    run.recipe.ranks = 1;  // nothing is waited for
    if (checkpoints) run.recipe.checkpointing = optim::Checkpointing::inside;
    return report::record_fake(run).ranks[0];
  };
  const auto strategy = GENERATE(optim::Strategy::fsdp, optim::Strategy::ddp);
  const RankRecord plain = record(strategy, false), again = record(strategy, true);
  std::int64_t forward_of_blocks = 0;
  for (const Event& event : plain.events) {
    if (!event.unit.starts_with("model.layers.")) continue;
    if (event.kind == EventKind::forward_begin) forward_of_blocks -= event.time;
    if (event.kind == EventKind::forward_end) forward_of_blocks += event.time;
  }
  CHECK(forward_of_blocks > 0);
  CHECK(again.end - plain.end == forward_of_blocks);
}

}  // namespace
}  // namespace fsdp::testing
