// The time of a step of a mesh, inside boxes and across them, and of offload in one.
#include "plan/timed.h"
#include "support/catch.h"

#include <utility>

namespace fsdp::testing::step_time_mesh {

TEST_CASE("A mesh takes what the formula says, inside boxes and across them, on every rank") {
  for (const auto& [world_size, replicas] : {std::pair(4, 2), {4, 4}, {6, 2}, {6, 3}, {8, 2}}) {
    for (const int micro_steps : {1, 3}) {
      for (int rank = 0; rank < world_size; ++rank) {
        MemoryCase test_case = timed_case(world_size);
        test_case.options.recipe.replicas = replicas;
        test_case.options.rank = rank;
        test_case.options.recipe.micro_steps = micro_steps;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("Offload takes what the formula says") {
  for (const bool grads : {false, true}) {
    for (const int depth : {0, 1, 2}) {
      for (const int micro_steps : {1, 2, 3}) {
        for (const int replicas : {1, 2}) {
          MemoryCase test_case = timed_case(4);
          test_case.options.recipe.sharding.offload = {.params = true, .grads = grads};
          test_case.options.recipe.sharding.prefetch_depth = depth;
          test_case.options.recipe.micro_steps = micro_steps;
          test_case.options.recipe.replicas = replicas;
          test_case.options.recipe.precision.param_dtype =
              micro_steps == 3 ? DType::bfloat16 : DType::float32;
          check_times(test_case);
        }
      }
    }
  }
}

}  // namespace fsdp::testing::step_time_mesh
