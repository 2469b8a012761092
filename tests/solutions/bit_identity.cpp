// The promise of the project: one process and FSDP on any power of two of ranks agree in every bit
// of every loss, parameter and optimizer state.

#include "base/lora.h"
#include "support/catch.h"
#include "support/reshard.h"
#include "support/temporary_folder.h"
#include "support/training.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// Under a sanitizer a few steps find what they can find.
constexpr int kSteps = FSDP_SANITIZED ? 4 : 50;

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
  const TrainingResult expected = train(base);
  const int world_size = GENERATE(1, 2, 4, 8);
  for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
    for (const bool no_sync : {false, true}) {
      CAPTURE(world_size, no_sync, strategy == Strategy::ddp);
      CHECK(difference(train(base.spread(strategy, world_size, no_sync)), expected) == "");
    }
  }
}

TEST_CASE("The options that trade memory for time change no bit") {
  TrainingCase base;
  base.steps = kSteps;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);
  const int world_size = GENERATE(1, 2, 4, 8);
  const auto check = [&](ReshardAfterForward reshard, int depth, int threads, bool no_sync) {
    TrainingCase options = base.spread(Strategy::fsdp, world_size, no_sync);
    options.recipe.sharding.reshard_after_forward = reshard;
    options.recipe.sharding.prefetch_depth = depth;
    options.threads = threads;
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
  base.recipe.micro_steps = 2;
  const TrainingResult expected = train(base);
  base.threads = 3;
  CHECK(difference(train(base), expected) == "");
  base.threads = 2;
  CHECK(difference(train(base.spread(Strategy::fsdp, 2)), expected) == "");
}

TEST_CASE("A checkpoint saved at any number of ranks continues on eight with the same bits") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);

  TrainingCase before = base.spread(Strategy::fsdp, GENERATE(4, 1, 2));
  before.steps = 2;
  const TrainingCase after = before.spread(Strategy::fsdp, 8);
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
  const TrainingResult expected = train(base);
  const bool no_sync = GENERATE(false, true);
  TrainingCase options = base.spread(Strategy::fsdp, GENERATE(1, 2, 4), no_sync);
  if (no_sync) options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
  if (what == "ignored")
    options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
  CAPTURE(what, options.recipe.ranks, no_sync);
  CHECK(difference(train(options), expected) == "");
}

TEST_CASE("Under every policy of mixed precision, all strategies agree in every bit") {
  TrainingCase base;
  base.steps = FSDP_SANITIZED ? 2 : 10;
  base.recipe.clip = 0.5;
  const TrainingResult in_float32 = train(base);
  for (const optim::MixedPrecision& policy : kPolicies) {
    base.recipe.precision = policy;
    const TrainingResult expected = train(base);
    CHECK(difference(expected, in_float32) != "");
    for (const int world_size : {1, 2, 4, 8}) {
      for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
        for (const bool no_sync : {false, true}) {
          CAPTURE(name_of(policy.param_dtype_for(kF32)), name_of(policy.reduce_dtype_for(kF32)));
          CAPTURE(world_size, no_sync, strategy == Strategy::ddp);
          CHECK(difference(train(base.spread(strategy, world_size, no_sync)), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("Another optimizer and gradients scaled before they are summed: the strategies agree") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.recipe.precision.reduce_dtype = kF16;  // in which small gradients are rounded when scaled
  const TrainingResult with_adamw = train(base);
  base.recipe.optimizer = {.name = "sgd", .options = {.momentum = 0.9}, .decay_norms = false};
  const TrainingResult scaled_after = train(base);
  CHECK(difference(scaled_after, with_adamw) != "");
  base.recipe.prescale = true;
  const TrainingResult expected = train(base);
  CHECK(difference(expected, scaled_after) != "");
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (const int world_size : {1, 2, 4}) {
      CAPTURE(static_cast<int>(strategy), world_size);
      CHECK(difference(train(base.spread(strategy, world_size)), expected) == "");
    }
  }
  base.recipe.precision = {};
  const TrainingResult exact = train(base);
  // From two ranks on, bits depend on their number. FSDP rounds by its reduce_dtype instead.
  base.recipe.zero.reductions.compression = kBf16;
  const TrainingResult compressed = train(base);
  CHECK(difference(compressed, exact) != "");
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    CAPTURE(static_cast<int>(strategy));
    CHECK(difference(train(base.spread(strategy, 1)), compressed) == "");
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
  const TrainingResult expected = train(base);
  const bool no_sync = GENERATE(false, true);
  TrainingCase options = base.spread(Strategy::fsdp, GENERATE(1, 2, 4), no_sync);
  options.recipe.sharding.reshard_after_forward =
      options.recipe.ranks == 4 ? ReshardAfterForward::within(2) : ReshardAfterForward::never();
  if (what == "ignored")
    options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
  CAPTURE(what, options.recipe.ranks, no_sync);
  CHECK(difference(train(options), expected) == "");
}

TEST_CASE("A checkpoint of mixed precision holds the masters, and continues at another W") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.precision = kPolicies[0];
  const TrainingResult expected = train(base);
  TrainingCase before = base.spread(Strategy::fsdp, GENERATE(4, 2));
  before.steps = 2;
  const TrainingCase after = before.spread(Strategy::fsdp, 8);
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
  const TrainingResult expected = train(base);
  for (const double norm : expected.norms) CHECK(norm > base.recipe.clip);
  // The norm counts the adapters alone: they are all that has a state.
  for (const auto& [name, values] : expected.state) {
    if (!name.starts_with("param/")) CHECK(is_lora(name));
  }
  for (const int world_size : {1, 2, 4, 8}) {
    for (const bool no_sync : {false, true}) {
      CAPTURE(world_size, no_sync);
      CHECK(difference(train(base.spread(Strategy::ddp, world_size, no_sync)), expected) == "");
      TrainingCase options = base.spread(Strategy::fsdp, world_size, no_sync);
      CHECK(difference(train(options), expected) == "");
      options.recipe.sharding.ignored = {"model.norm", "model.layers.0.self_attn",
                                         "model.embed_tokens"};
      CHECK(difference(train(options), expected) == "");
    }
  }
}
