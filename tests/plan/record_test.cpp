// The time of a step by formula is that of the report's recorded trainings.
#include "paper/time_formula.h"
#include "report/runs/short_run.h"
#include "support/catch.h"

namespace fsdp::testing::recorded_times {

using optim::Strategy;
using paper::MemoryOptions;
using report::ShortRun;

TEST_CASE("A recorded step takes what the formula says") {
  for (const auto& model : {nn::TransformerConfig::nano(), nn::TransformerConfig::tiny()}) {
    for (const auto strategy : {optim::Strategy::fsdp, optim::Strategy::ddp}) {
      for (const int ranks : {1, 2, 3, 8}) {
        for (const int micro_steps : {1, 3}) {
          ShortRun run;
          run.model = model;
          run.recipe.strategy = strategy;
          run.recipe.ranks = ranks;
          run.recipe.micro_steps = micro_steps;
          run.recipe.bucket_bytes = 100'000;
          MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
          options.recipe.strategy =
              strategy == optim::Strategy::fsdp ? Strategy::fsdp : Strategy::ddp;
          options.recipe.ranks = ranks;
          options.recipe.micro_steps = micro_steps;
          options.recipe.bucket_bytes = 100'000;
          CAPTURE(ranks, micro_steps, model.hidden_size, strategy == optim::Strategy::ddp);
          for (const CostModel& machine : {report::kSmallMachine, report::in_boxes(2)}) {
            const paper::TimeFormula formula(model, options, machine);
            CHECK(record_fake(run, machine).ranks[0].end == formula.step(1).total());
            ShortRun first = run;
            first.steps_before = 0;
            CHECK(record_fake(first, machine).ranks[0].end == formula.step(0).total());
          }
        }
      }
    }
  }
}

}  // namespace fsdp::testing::recorded_times
