// The time of a step with activation checkpointing is that of the real engine, too.
#include "plan/timed.h"
#include "support/catch.h"

namespace fsdp::testing::step_time_checkpointing {

using optim::Checkpointing;
using optim::Strategy;

TEST_CASE("A step with blocks checkpointed inside takes what the formula says") {
  for (const Strategy placement :
       {Strategy::single, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (const bool is_tied : {false, true}) {
      for (const int depth : {0, 1, 2}) {
        MemoryCase test_case = timed_case(placement == Strategy::single ? 1 : 3);
        test_case.model.tie_word_embeddings = is_tied;
        test_case.options.recipe.strategy = placement;
        test_case.options.recipe.checkpointing = Checkpointing::inside;
        test_case.options.recipe.sharding.prefetch_depth = depth;
        test_case.options.recipe.bucket_bytes = 3000;
        test_case.options.recipe.micro_steps = 2;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("A step that computes a part of a block again takes what the formula says") {
  const std::vector<std::vector<std::string>> lists = {
      optim::Recipe{}.kept_operations, {"self_attn"}, {"k_proj", "down_proj"}};
  for (const auto& kept : lists) {
    for (const int every : {1, 2}) {
      for (const Strategy placement : {Strategy::single, Strategy::ddp, Strategy::fsdp}) {
        MemoryCase test_case = timed_case(placement == Strategy::single ? 1 : 3);
        test_case.options.recipe.strategy = placement;
        test_case.options.recipe.checkpointing = Checkpointing::operations;
        test_case.options.recipe.kept_operations = kept;
        test_case.options.recipe.checkpoint_every = every;
        test_case.options.recipe.micro_steps = 2;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("A step with blocks checkpointed from around takes what the formula says") {
  for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never(),
                             ReshardAfterForward::within(2)}) {
    for (const int depth : {0, 1, 2, 5}) {
      for (const int limit : {0, 1}) {
        MemoryCase test_case = timed_case(4);
        test_case.options.recipe.checkpointing = Checkpointing::around;
        test_case.options.recipe.sharding.reshard_after_forward = reshard;
        test_case.options.recipe.sharding.prefetch_depth = depth;
        test_case.options.recipe.sharding.in_flight_limit = limit;
        check_times(test_case);
      }
    }
  }
}

}  // namespace fsdp::testing::step_time_checkpointing
