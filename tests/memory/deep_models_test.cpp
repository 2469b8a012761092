// Deep models: blocks that are passed over leave the bytes, the time and the traffic of a walk
// through all of them.
#include "paper/memory_formula.h"
#include "paper/step_walk.h"
#include "plan/timed.h"
#include "support/catch.h"

#include <vector>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

struct Walked {
  std::vector<StepMemory> memory;
  std::vector<StepTime> time;
  WireBytes traffic;
};

// A recording walk passes over nothing.
Walked walk(const nn::TransformerConfig& model, const MemoryOptions& options,
            const CostModel& machine, MemorySpace space, bool is_recorded) {
  Books books(options);
  books.open_bytes(space);
  books.open_traffic();
  books.open_clock(machine, kernel_times(model, options, machine));
  StepWalk walk(model, options, books);
  walk.set_recording(is_recorded);
  Walked walked;
  for (int step = 0; step < 2; ++step) {
    walked.memory.push_back(walk.next_step());
    walked.time.push_back(books.take_time());
  }
  walked.traffic = books.traffic();
  return walked;
}

void check_alike(const nn::TransformerConfig& model, const MemoryOptions& options,
                 const CostModel& machine) {
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host}) {
    const Walked all = walk(model, options, machine, space, true);
    const Walked few = walk(model, options, machine, space, false);
    CHECK(few.time == all.time);
    CHECK(few.traffic.total() == all.traffic.total());
    for (std::size_t step = 0; step < all.memory.size(); ++step) {
      CHECK(few.memory[step].peak() == all.memory[step].peak());
      CHECK(few.memory[step].at_rest == all.memory[step].at_rest);
    }
  }
}

// Gathers and reductions end long before they are needed, in boxes or not, or lag.
const std::vector<CostModel> kMachines = {kSlowKernels,
                                          kOddMachine,
                                          {.ps_per_flop = 1,
                                           .ps_per_byte = 2,
                                           .alpha_ps = 20'000,
                                           .link_ps_per_byte = 70,
                                           .bus_ps_per_byte = 90,
                                           .host_ps_per_byte = 20}};

}  // namespace

TEST_CASE("Of a deep model, blocks that find what the one before found are walked once") {
  int number = 0;
  for (const int layers : {4, 9, 24}) {
    nn::TransformerConfig model = odd_model();
    model.num_hidden_layers = layers;
    for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never(),
                               ReshardAfterForward::within(2)}) {
      for (const int depth : {0, 1, 3}) {
        for (const int limit : {0, 2}) {
          for (const optim::Offload offload :
               {optim::Offload{}, {.params = true}, {.params = true, .grads = true}}) {
            for (const int replicas : {1, 2}) {
              if (replicas == 2 && reshard.is_within()) continue;
              MemoryOptions options;
              options.recipe = {.strategy = Strategy::fsdp, .ranks = 4, .replicas = replicas};
              options.recipe.sharding = {.reshard_after_forward = reshard,
                                         .prefetch_depth = depth,
                                         .in_flight_limit = limit,
                                         .offload = offload};
              options.recipe.micro_steps = number % 3 == 0 ? 4 : 1;
              options.recipe.micro_steps_per_reduction = number % 6 == 0 ? 4 : 1;
              options.recipe.clip = number % 2;
              if (number % 4 == 1) options.recipe.precision = {DType::bfloat16, DType::float32};
              if (number % 5 == 1) options.recipe.checkpointing = Checkpointing::inside;
              if (number % 5 == 2) options.recipe.checkpointing = Checkpointing::around;
              if (number % 5 == 3) options.recipe.checkpointing = Checkpointing::operations;
              if (number % 2 == 1) options.recipe.checkpoint_every = 3;
              model.tie_word_embeddings = number % 7 == 3;
              CAPTURE(layers, depth, limit, replicas, number);
              check_alike(model, options, kMachines[static_cast<std::size_t>(number) % 3]);
              ++number;
            }
          }
        }
      }
    }
  }
}

TEST_CASE("Of a thousand blocks, a few are walked in each forward and backward") {
  nn::TransformerConfig model = odd_model();
  model.num_hidden_layers = 1000;
  MemoryOptions options;
  options.recipe = {.strategy = Strategy::fsdp, .ranks = 4};
  for (const int depth : {0, 1, 3}) {
    options.recipe.sharding.prefetch_depth = depth;
    Books books(options);
    books.open_bytes();
    StepWalk walk(model, options, books);
    walk.set_recording(false);
    walk.next_step();
    CHECK(walk.segments_walked() < 2 * (10 + 2 * depth));
  }
}
