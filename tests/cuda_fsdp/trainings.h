/// @file
/// Trainings whose ranks share one device of the stand-in.
#pragma once

#include "cuda_stand_in/plans.h"
#include "support/training.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::testing {

/// Streams that run late, and streams that interleave; or the plan that CUDA_ON_HOST names.
inline std::vector<Plan> two_plans() { return requested_or({{Mode::lazy, 0}, {Mode::random, 3}}); }

/// One of them for each number, in turn.
inline Plan plan_in_turn(std::size_t number) {
  const std::vector<Plan> plans = two_plans();
  return plans[number % plans.size()];
}

/// Two steps of four micro-batches on cuda:0. No size of the model is one that vectors, blocks or
/// ranks divide.
inline TrainingCase cuda_case(Strategy strategy = Strategy::single, int world_size = 1) {
  TrainingCase options;
  options.device = kCuda;
  options.model = {.vocab_size = 13,
                   .hidden_size = 12,
                   .num_hidden_layers = 2,
                   .num_attention_heads = 2,
                   .num_key_value_heads = 1,
                   .intermediate_size = 17,
                   .max_position_embeddings = 5};
  options.recipe.micro_steps = 4;
  options.batch = 1;
  options.steps = 2;
  return options.spread(strategy, world_size);
}

/// What a training left, and how often the host waited within its steps.
struct CudaTraining {
  TrainingResult result;
  std::int64_t waits = 0;
};

/// Trains in a Session of its own, which must end well.
inline CudaTraining train_on_device(TrainingCase options, const Plan& plan) {
  CudaTraining training;
  options.at_border_of_steps = [&training] {
    training.waits = cuda_on_host::host_waits() - training.waits;
  };
  Session session(plan);
  training.result = train(options);
  session.finish();
  return training;
}

}  // namespace fsdp::testing
