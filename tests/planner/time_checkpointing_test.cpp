// The time of a step with activation checkpointing is that of the real engine, too.
#include "planner/timed.h"
#include "support/catch.h"

namespace fsdp::testing::step_time_checkpointing {

using estimate::Checkpointing;
using estimate::Placement;
using estimate::Reshard;

TEST_CASE("A step with blocks checkpointed inside takes what the formula says") {
  for (const Placement placement : {Placement::single, Placement::ddp, Placement::zero1,
                                    Placement::zero2, Placement::sharded}) {
    for (const bool is_tied : {false, true}) {
      for (const int depth : {0, 1, 2}) {
        MemoryCase test_case = timed_case(placement == Placement::single ? 1 : 3);
        test_case.model.tie_word_embeddings = is_tied;
        test_case.options.placement = placement;
        test_case.options.checkpointing = Checkpointing::inside;
        test_case.options.prefetch_depth = depth;
        test_case.options.bucket_bytes = 3000;
        test_case.options.micro_steps = 2;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("A step with blocks checkpointed from around takes what the formula says") {
  for (const Reshard reshard : {Reshard::always, Reshard::never, Reshard::within}) {
    for (const int depth : {0, 1, 2, 5}) {
      for (const int limit : {0, 1}) {
        MemoryCase test_case = timed_case(4);
        test_case.options.checkpointing = Checkpointing::around;
        test_case.options.reshard = reshard;
        test_case.options.reshard_ranks = 2;
        test_case.options.prefetch_depth = depth;
        test_case.options.in_flight_limit = limit;
        check_times(test_case);
      }
    }
  }
}

}  // namespace fsdp::testing::step_time_checkpointing
