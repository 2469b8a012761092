// The largest micro-batch by formula is the largest that runs: one more is out of memory.
#include "planner/largest.h"
#include "memory/real_training.h"
#include "support/catch.h"

namespace fsdp::testing::largest_batches {
namespace {

using estimate::MemoryOptions;
using estimate::Placement;
using planner::Evaluator;
using planner::LargestBatch;

}  // namespace

TEST_CASE("The largest batch fits, and one sequence more does not") {
  Evaluator evaluator(odd_model(), {});
  for (const Placement placement : {Placement::ddp, Placement::zero1, Placement::sharded}) {
    MemoryOptions options;
    options.placement = placement;
    options.world_size = 3;
    for (const std::int64_t memory : {2'300'000, 2'500'000, 3'000'000}) {
      const LargestBatch found = largest_batch(evaluator, options, memory);
      REQUIRE(found.batch >= 1);
      options.batch = found.batch;
      CHECK(evaluator.memory(options).total() == found.peak.total());
      CHECK(found.peak.total() <= memory);
      options.batch = found.batch + 1;
      CHECK(evaluator.memory(options).total() == found.over.total());
      CHECK(found.over.total() > memory);
    }
  }
}

TEST_CASE("If not even one sequence fits, there is no largest batch") {
  Evaluator evaluator(odd_model(), {});
  const MemoryOptions options;
  const LargestBatch found = largest_batch(evaluator, options, 1000);
  CHECK(found.batch == 0);
  CHECK(largest_text(found, options, 1000).find("not even one sequence fits") != std::string::npos);
}

TEST_CASE("A training with the largest batch runs within the limit, and throws with one more") {
  for (const Placement placement : {Placement::single, Placement::sharded}) {
    MemoryCase test_case;
    test_case.model = odd_model();
    test_case.records = false;
    test_case.options.placement = placement;
    test_case.options.world_size = placement == Placement::single ? 1 : 2;
    Evaluator evaluator(test_case.model, {});
    const std::int64_t memory = 2'400'000;
    const LargestBatch found = largest_batch(evaluator, test_case.options, memory);
    REQUIRE(found.batch > 1);
    test_case.limit = static_cast<std::size_t>(memory);
    test_case.options.batch = found.batch;
    std::int64_t peak = 0;
    const MeasuredMemory measured = measure(test_case).front();
    for (const estimate::StepMemory& step : measured.steps) {
      peak = std::max(peak, step.peak().total());
    }
    CHECK(peak == found.peak.total());
    test_case.options.batch = found.batch + 1;
    CHECK_THROWS_WITH(measure(test_case), contains("out of memory"));
  }
}

}  // namespace fsdp::testing::largest_batches
