// The time of a step of ZeRO whose optimizer is on the host, to the picosecond.
#include "plan/timed.h"
#include "support/catch.h"

namespace fsdp::testing::step_time_zero_offload {

using optim::MixedPrecision;
using optim::Partition;
using optim::Strategy;

TEST_CASE("ZeRO with its optimizer on the host takes what the formula says, on every rank") {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const bool grads : {false, true}) {
      if (grads && strategy == Strategy::zero1) continue;
      for (const int world_size : {1, 2, 3, 4}) {
        for (const int micro_steps : {1, 2, 3, 6}) {
          MemoryCase test_case = timed_case(world_size);
          optim::Recipe& recipe = test_case.options.recipe;
          test_case.options.rank = micro_steps % world_size;
          recipe.strategy = strategy;
          recipe.sharding.offload = {.grads = grads, .optimizer = true};
          recipe.micro_steps = micro_steps;
          recipe.micro_steps_per_reduction = micro_steps == 6 ? 3 : 1;
          recipe.bucket_bytes = 4000;
          recipe.zero.partition = micro_steps == 2 ? Partition::greedy : Partition::flat;
          recipe.zero.reduce_buffer_bytes = micro_steps == 3 ? 3000 : 0;
          recipe.zero.broadcast_buffer_bytes = micro_steps == 3 ? 2000 : 0;
          recipe.zero.broadcast_fp16 = micro_steps == 6;
          if (world_size % 2 == 0) recipe.precision = {DType::bfloat16, DType::float32};
          if (world_size == 3) recipe.precision = {DType::bfloat16, {}};
          CAPTURE(strategy == Strategy::zero2, grads);
          check_times(test_case);
        }
      }
    }
  }
}

}  // namespace fsdp::testing::step_time_zero_offload
