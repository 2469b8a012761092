// The promise of the project: one process and FSDP on any power of two of ranks agree in every bit
// of every loss, parameter and optimizer state.

#include "nn/lora.h"
#include "support/catch.h"
#include "support/reshard.h"
#include "support/temporary_folder.h"
#include "support/training.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// Under a sanitizer a few steps find what they can find.
constexpr int kSteps = FSDP_SANITIZED ? 4 : 50;

/// What a single process makes of the same model, data and options.
TrainingResult single(TrainingCase options) {
  options.recipe.strategy = Strategy::single;
  options.recipe.ranks = 1;
  return train(options);
}

constexpr DType kBf16 = DType::bfloat16, kF16 = DType::float16, kF32 = DType::float32;

const std::vector<optim::MixedPrecision> kPolicies = {
    {.param_dtype = kBf16, .reduce_dtype = kF32},
    {.param_dtype = kBf16, .reduce_dtype = {}},
    {.param_dtype = kF16, .reduce_dtype = kF32},
    {.param_dtype = {}, .reduce_dtype = kBf16},
};

}  // namespace

TEST_CASE("Fifty steps of nano: FSDP and DDP equal a single process in every bit") {
  TrainingCase base;
  base.steps = kSteps;
  base.recipe.clip = 0.5;
  const TrainingResult expected = single(base);
  const int world_size = GENERATE(1, 2, 4, 8);
  for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
    for (const bool no_sync : {false, true}) {
      TrainingCase options = base;
      options.recipe.strategy = strategy;
      options.recipe.ranks = world_size;
      options.no_sync = no_sync;
      CAPTURE(world_size, no_sync, strategy == Strategy::ddp);
      CHECK(difference(train(options), expected) == "");
    }
  }
}

TEST_CASE("The options that trade memory for time change no bit") {
  TrainingCase base;
  base.steps = kSteps;
  base.recipe.clip = 0.5;
  const TrainingResult expected = single(base);
  const int world_size = GENERATE(1, 2, 4, 8);
  const auto check = [&](ReshardAfterForward reshard, int depth, int threads, bool no_sync) {
    TrainingCase options = base;
    options.recipe.strategy = Strategy::fsdp;
    options.recipe.ranks = world_size;
    options.recipe.sharding.reshard_after_forward = reshard;
    options.recipe.sharding.prefetch_depth = depth;
    options.threads = threads;
    options.no_sync = no_sync;
    CAPTURE(world_size, number_of(reshard), depth, threads, no_sync);
    CHECK(difference(train(options), expected) == "");
  };
  check(ReshardAfterForward::never(), 1, 1, false);
  check(ReshardAfterForward::never(), 2, 2, true);
  check(ReshardAfterForward::always(), 0, 2, false);
  check(ReshardAfterForward::always(), 2, 1, true);
  if (world_size > 2) {
    check(ReshardAfterForward::within(2), 1, 1, false);
    check(ReshardAfterForward::within(2), 2, 2, true);
  }
}

TEST_CASE("Threads inside a rank change no bit where kernels are really cut") {
  TrainingCase base;
  base.model = nn::TransformerConfig::tiny();
  base.steps = 2;
  base.micro_batches = 2;
  const TrainingResult expected = single(base);
  base.threads = 3;
  CHECK(difference(single(base), expected) == "");
  base.recipe.strategy = Strategy::fsdp;
  base.recipe.ranks = 2;
  base.threads = 2;
  CHECK(difference(train(base), expected) == "");
}

TEST_CASE("A checkpoint saved at any number of ranks continues on eight with the same bits") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.clip = 0.5;
  const TrainingResult expected = single(base);

  TrainingCase before = base;
  before.recipe.strategy = Strategy::fsdp;
  before.recipe.ranks = GENERATE(4, 1, 2);
  before.steps = 2;
  TrainingCase after = before;
  after.recipe.ranks = 8;
  const TemporaryFolder folder;
  const TrainingResult joined = train_in_parts({before, after}, folder.path());
  CAPTURE(before.recipe.ranks);
  CHECK(difference(joined, expected) == "");
}

TEST_CASE("Ignored, frozen and tied parameters change no bit") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  const std::string what = GENERATE("ignored", "frozen", "tied");
  if (what == "frozen") {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  }
  base.model.tie_word_embeddings = what == "tied";
  const TrainingResult expected = single(base);
  TrainingCase options = base;
  options.recipe.strategy = Strategy::fsdp;
  options.recipe.ranks = GENERATE(1, 2, 4);
  options.meta_start = GENERATE(false, true);
  options.no_sync = GENERATE(false, true);
  if (options.no_sync) options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
  if (what == "ignored")
    options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
  CAPTURE(what, options.recipe.ranks, options.meta_start, options.no_sync);
  CHECK(difference(train(options), expected) == "");
}

TEST_CASE("Under every policy of mixed precision, all strategies agree in every bit") {
  TrainingCase base;
  base.steps = FSDP_SANITIZED ? 2 : 10;
  base.recipe.clip = 0.5;
  const TrainingResult in_float32 = single(base);
  for (const optim::MixedPrecision& policy : kPolicies) {
    base.recipe.precision = policy;
    const TrainingResult expected = single(base);
    CHECK(difference(expected, in_float32) != "");
    for (const int world_size : {1, 2, 4, 8}) {
      for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
        for (const bool no_sync : {false, true}) {
          TrainingCase options = base;
          options.recipe.strategy = strategy;
          options.recipe.ranks = world_size;
          options.no_sync = no_sync;
          CAPTURE(name_of(policy.param_dtype_for(kF32)), name_of(policy.reduce_dtype_for(kF32)));
          CAPTURE(world_size, no_sync, strategy == Strategy::ddp);
          CHECK(difference(train(options), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("Mixed precision with tied, frozen and ignored parameters changes no bit either") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.recipe.precision = kPolicies[static_cast<std::size_t>(GENERATE(0, 1))];
  const std::string what = GENERATE("ignored", "frozen", "tied");
  if (what == "frozen") {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  }
  base.model.tie_word_embeddings = what == "tied";
  const TrainingResult expected = single(base);
  TrainingCase options = base;
  options.recipe.strategy = Strategy::fsdp;
  options.recipe.ranks = GENERATE(1, 2, 4);
  options.meta_start = options.no_sync = GENERATE(false, true);
  options.recipe.sharding.reshard_after_forward =
      options.recipe.ranks == 4 ? ReshardAfterForward::within(2) : ReshardAfterForward::never();
  if (what == "ignored")
    options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
  CAPTURE(what, options.recipe.ranks, options.meta_start, options.no_sync);
  CHECK(difference(train(options), expected) == "");
}

TEST_CASE("A checkpoint of mixed precision holds the masters, and continues at another W") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.precision = kPolicies[0];
  const TrainingResult expected = single(base);
  TrainingCase before = base;
  before.recipe.strategy = Strategy::fsdp;
  before.recipe.ranks = GENERATE(4, 2);
  before.steps = 2;
  TrainingCase after = before;
  after.recipe.ranks = 8;
  const TemporaryFolder folder;
  const TrainingResult joined = train_in_parts({before, after}, folder.path());
  CHECK(difference(joined, expected) == "");
}

TEST_CASE("LoRA changes no bit either: sharded, replicated, frozen and tied together") {
  TrainingCase base;
  base.steps = kSteps / 4;
  base.recipe.clip = 0.02;  // below every norm
  base.model.tie_word_embeddings = GENERATE(false, true);
  base.recipe.lora = {.rank = 3, .targets = {"q_proj", "v_proj", "up_proj"}};
  const std::optional<DType> half = GENERATE(std::optional<DType>(), std::optional(kBf16));
  base.recipe.precision = {.param_dtype = half, .reduce_dtype = half ? std::optional(kF32) : half};
  const TrainingResult expected = single(base);
  for (const double norm : expected.norms) CHECK(norm > base.recipe.clip);
  // The norm counts the adapters alone: they are all that has a state.
  for (const auto& [name, values] : expected.state) {
    if (!name.starts_with("param/")) CHECK(is_lora(name));
  }
  for (const int world_size : {1, 2, 4, 8}) {
    for (const bool no_sync : {false, true}) {
      TrainingCase options = base;
      options.recipe.ranks = world_size;
      options.no_sync = no_sync;
      CAPTURE(world_size, no_sync);
      options.recipe.strategy = Strategy::ddp;
      CHECK(difference(train(options), expected) == "");
      options.recipe.strategy = Strategy::fsdp;
      CHECK(difference(train(options), expected) == "");
      options.meta_start = true;
      options.recipe.sharding.ignored = {"model.norm", "model.layers.0.self_attn",
                                         "model.embed_tokens"};
      CHECK(difference(train(options), expected) == "");
    }
  }
}
