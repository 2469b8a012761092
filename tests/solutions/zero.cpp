// ZeRO-1 and ZeRO-2 against a single process, to the last bit: so they also equal DDP and FSDP.
#include "support/catch.h"
#include "support/training.h"

namespace fsdp::testing::zero_test {
namespace {

using optim::Partition;

TrainingResult single(TrainingCase options) {
  options.recipe.strategy = Strategy::single;
  options.recipe.ranks = 1;
  return train(options);
}

/// Both engines and both partitions, at every W, with gradients that travel alone and together.
void check_all(const TrainingCase& base, const TrainingResult& expected) {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const Partition partition : {Partition::greedy, Partition::flat}) {
      for (const int world_size : {1, 2, 4, 8}) {
        for (const bool no_sync : {false, true}) {
          TrainingCase options = base;
          options.recipe.strategy = strategy;
          options.recipe.ranks = world_size;
          options.no_sync = no_sync;
          options.recipe.zero.partition = partition;
          options.recipe.zero.reduce_buffer_bytes = no_sync ? 0 : 2000;
          options.recipe.zero.broadcast_buffer_bytes = world_size == 2 ? 0 : 5000;
          CAPTURE(world_size, no_sync, strategy == Strategy::zero2, partition == Partition::flat);
          CHECK(difference(train(options), expected) == "");
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("ZeRO-1 and ZeRO-2 equal a single process in every bit") {
  TrainingCase base;
  base.steps = FSDP_SANITIZED ? 2 : 10;
  base.recipe.clip = 0.5;
  check_all(base, single(base));
}

TEST_CASE("ZeRO-1 and ZeRO-2 with frozen and tied parameters change no bit") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.model.tie_word_embeddings = GENERATE(true, false);
  if (!base.model.tie_word_embeddings) {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  }
  check_all(base, single(base));
}

TEST_CASE("ZeRO-1 and ZeRO-2 under mixed precision change no bit") {
  TrainingCase base;
  base.recipe.precision = GENERATE(
      optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
      optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = {}});
  check_all(base, single(base));
}

}  // namespace fsdp::testing::zero_test
