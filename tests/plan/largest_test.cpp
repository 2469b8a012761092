// The largest micro-batch by formula is the largest that runs: one more is out of memory.
#include "plan/largest.h"
#include "memory/real_training.h"
#include "paper/memory_formula.h"
#include "support/catch.h"

#include <algorithm>

namespace fsdp::testing::largest_batches {
namespace {

using optim::Strategy;
using paper::MemoryOptions;
using plan::Evaluator;
using plan::LargestBatch;

/// Over the ranks, each asked for by itself.
std::int64_t highest_peak(const nn::TransformerConfig& model, MemoryOptions options) {
  std::int64_t highest = 0;
  for (options.rank = 0; options.rank < options.recipe.ranks; ++options.rank) {
    const std::int64_t peak = paper::peak_of_training(model, options).total();
    highest = std::max(highest, peak);
  }
  return highest;
}

}  // namespace

TEST_CASE("The largest batch fits on every rank, and one sequence more does not fit on one") {
  for (const Strategy placement :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (const int world_size : {2, 3, 4}) {
      MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
      options.recipe.strategy = placement;
      options.recipe.ranks = world_size;
      for (const std::int64_t memory : {2'300'000, 2'500'000, 3'000'000}) {
        Evaluator evaluator(odd_model(), {});
        const LargestBatch found = largest_batch(evaluator, options, memory);
        CAPTURE(static_cast<int>(placement), world_size, memory);
        REQUIRE(found.batch >= 1);
        options.batch = found.batch;
        CHECK(highest_peak(odd_model(), options) == found.nbytes);
        CHECK(found.nbytes <= memory);
        options.batch = found.batch + 1;
        CHECK(highest_peak(odd_model(), options) == found.over);
        CHECK(found.over > memory);
      }
    }
  }
}

TEST_CASE("What a strategy saves is spent on larger batches, or on fewer ranks") {
  const nn::TransformerConfig model = nn::TransformerConfig::tiny();
  const std::int64_t memory = 40'000'000;
  const auto largest = [&](Strategy placement, int ranks) {
    MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
    options.recipe.strategy = placement;
    options.recipe.ranks = ranks;
    Evaluator evaluator(model, {});
    return largest_batch(evaluator, options, memory).batch;
  };
  const std::int64_t ddp = largest(Strategy::ddp, 4);
  const std::int64_t zero1 = largest(Strategy::zero1, 4);
  CHECK(ddp < zero1);
  CHECK(zero1 < largest(Strategy::zero2, 4));
  // As many sequences in all: DDP over four ranks, FSDP over three.
  CHECK(largest(Strategy::fsdp, 3) * 3 >= ddp * 4);
}

TEST_CASE("The memory planned with ZeRO is that of the rank with the highest peak") {
  nn::TransformerConfig model = nn::TransformerConfig::tiny();
  MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.strategy = Strategy::zero2;
  options.recipe.ranks = 4;
  options.recipe.zero.reduce_buffer_bytes = options.recipe.zero.broadcast_buffer_bytes =
      std::size_t{25} << 20;
  Evaluator evaluator(model, {});
  for (const auto partition : {optim::Partition::greedy, optim::Partition::flat}) {
    for (const std::int64_t batch : {1, 2, 5}) {
      options.recipe.zero.partition = partition;
      options.batch = batch;
      CHECK(evaluator.memory(options).total() == highest_peak(model, options));
    }
  }
}

TEST_CASE("If not even one sequence fits, there is no largest batch") {
  Evaluator evaluator(odd_model(), {});
  const MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  const LargestBatch found = largest_batch(evaluator, options, 1000);
  CHECK(found.batch == 0);
  CHECK(largest_text(found, options, 1000).find("not even one sequence fits") != std::string::npos);
}

TEST_CASE("A training with the largest batch runs within the limit, and throws with one more") {
  for (const Strategy placement : {Strategy::single, Strategy::zero2, Strategy::fsdp}) {
    MemoryCase test_case;
    test_case.model = odd_model();
    test_case.records = false;
    test_case.options.recipe.strategy = placement;
    test_case.options.recipe.ranks = placement == Strategy::single ? 1 : 2;
    Evaluator evaluator(test_case.model, {});
    const std::int64_t memory = 2'400'000;
    const LargestBatch found = largest_batch(evaluator, test_case.options, memory);
    REQUIRE(found.batch > 1);
    test_case.limit = static_cast<std::size_t>(memory);
    test_case.options.batch = found.batch;
    std::int64_t peak = 0;
    for (const MeasuredMemory& measured : measure(test_case)) {
      for (const paper::StepMemory& step : measured.steps) {
        peak = std::max(peak, step.peak().total());
      }
    }
    CHECK(peak == found.nbytes);
    test_case.options.batch = found.batch + 1;
    CHECK_THROWS_WITH(measure(test_case), contains("out of memory"));
  }
}

}  // namespace fsdp::testing::largest_batches
