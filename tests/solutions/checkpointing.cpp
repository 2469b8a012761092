// Activation checkpointing changes no bit of a training, in either nesting.
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/training.h"

#include <utility>
#include <vector>

namespace fsdp::testing::checkpointing_test {
namespace {

struct World {
  Strategy strategy;
  int ranks;
  int replicas = 1;
};
const std::vector<World> kWorlds = {
    {Strategy::single, 1}, {Strategy::ddp, 2},  {Strategy::ddp, 4},  {Strategy::fsdp, 1},
    {Strategy::fsdp, 2},   {Strategy::fsdp, 4}, {Strategy::fsdp, 8}, {Strategy::fsdp, 4, 2}};

TrainingCase in(const World& world, Checkpointing checkpointed, const TrainingCase& base,
                bool no_sync = false) {
  TrainingCase options = base.spread(world.strategy, world.ranks, no_sync);
  options.recipe.replicas = world.replicas;
  options.recipe.checkpointing = checkpointed;
  return options;
}

std::vector<Checkpointing> nestings_of(const World& world) {
  if (world.strategy != Strategy::fsdp) return {Checkpointing::inside, Checkpointing::operations};
  return {Checkpointing::inside, Checkpointing::operations, Checkpointing::around};
}

}  // namespace

TEST_CASE("Checkpointing blocks leave the bits of a single process, in both nestings") {
  const std::vector<optim::MixedPrecision> policies = {
      {}, {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32}};
  for (const optim::MixedPrecision& policy : policies) {
    TrainingCase base;
    base.steps = FSDP_SANITIZED ? 2 : 4;
    base.recipe.clip = 0.5;
    base.recipe.precision = policy;
    const TrainingResult expected = train(base);
    for (const World& world : kWorlds) {
      for (const Checkpointing nesting : nestings_of(world)) {
        for (const bool no_sync : {false, true}) {
          TrainingCase options = in(world, nesting, base, no_sync);
          options.recipe.sharding.prefetch_depth = no_sync ? 0 : 1;
          CAPTURE(static_cast<int>(world.strategy), world.ranks, world.replicas,
                  static_cast<int>(nesting), no_sync);
          CHECK(difference(train(options), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("Checkpointing blocks under every way to reshard, and at every depth") {
  TrainingCase base;
  base.model.num_hidden_layers = 3;
  base.recipe.micro_steps = 4;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);
  const Checkpointing nesting =
      GENERATE(Checkpointing::inside, Checkpointing::operations, Checkpointing::around);
  for (const auto& reshard : {ReshardAfterForward::always(), ReshardAfterForward::never(),
                              ReshardAfterForward::within(2)}) {
    for (const int depth : {0, 1, 2}) {
      TrainingCase options = in({Strategy::fsdp, 4}, nesting, base);
      options.recipe.sharding.reshard_after_forward = reshard;
      options.recipe.sharding.prefetch_depth = depth;
      CAPTURE(static_cast<int>(reshard.kind), depth, static_cast<int>(nesting));
      CHECK(difference(train(options), expected) == "");
    }
  }
}

TEST_CASE("Checkpointing blocks with tied, frozen and ignored parameters, and with LoRA") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  const std::string what = GENERATE("tied", "frozen", "ignored", "lora", "three ranks");
  if (what == "frozen") {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  }
  base.model.tie_word_embeddings = what == "tied";
  if (what == "lora") base.recipe.lora = {.rank = 3, .alpha = 6};
  if (what == "three ranks") base.recipe.micro_steps = 6;
  TrainingCase ignoring = base;
  if (what == "ignored")
    ignoring.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
  const int ranks = what == "three ranks" ? 3 : 2;
  const TrainingResult expected =
      train(what == "three ranks" ? in({Strategy::fsdp, 3}, Checkpointing::none, base) : base);
  if (ranks == 2) {
    CHECK(difference(train(in({Strategy::single, 1}, Checkpointing::inside, base)), expected) ==
          "");
    CHECK(difference(train(in({Strategy::ddp, 2}, Checkpointing::inside, base)), expected) == "");
  }
  for (const Checkpointing nesting :
       {Checkpointing::inside, Checkpointing::operations, Checkpointing::around}) {
    CAPTURE(what, static_cast<int>(nesting));
    CHECK(difference(train(in({Strategy::fsdp, ranks}, nesting, ignoring)), expected) == "");
  }
}

TEST_CASE("Whatever results a checkpoint keeps, and of whichever blocks, the bits are the same") {
  TrainingCase base;
  base.model.num_hidden_layers = 3;
  const TrainingResult expected = train(base);
  const std::vector<std::vector<std::string>> lists = {
      {}, {"q_proj"}, {"k_proj", "self_attn"}, {"o_proj", "down_proj"}, {"v_proj", "up_proj"}};
  for (const std::vector<std::string>& kept : lists) {
    for (const int every : {1, 2, 4}) {
      for (const World& world : {World{Strategy::single, 1}, {Strategy::fsdp, 2}}) {
        TrainingCase options = in(world, Checkpointing::operations, base);
        options.recipe.kept_operations = kept;
        options.recipe.checkpoint_every = every;
        CAPTURE(kept, every, world.ranks);
        CHECK(difference(train(options), expected) == "");
      }
    }
  }
}

TEST_CASE("Checkpointing blocks whose shards are offloaded leave the bits of a single process") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);
  for (const Checkpointing nesting : {Checkpointing::inside, Checkpointing::around}) {
    for (const bool grads : {false, true}) {
      TrainingCase options = in({Strategy::fsdp, 4}, nesting, base);
      options.recipe.sharding.offload = {.params = true, .grads = grads};
      CAPTURE(static_cast<int>(nesting), grads);
      CHECK(difference(train(options), expected) == "");
    }
  }
}

TEST_CASE("A training saved with checkpointed blocks goes on without, and the other way round") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);
  for (const auto& [first, second] : {std::pair{Checkpointing::inside, Checkpointing::none},
                                      {Checkpointing::none, Checkpointing::around},
                                      {Checkpointing::around, Checkpointing::inside}}) {
    TrainingCase before = in({Strategy::fsdp, 4}, first, base);
    TrainingCase after = in({Strategy::fsdp, 2}, second, base);
    before.steps = after.steps = 2;
    const TemporaryFolder folder;
    const TrainingResult joined = train_in_parts({before, after}, folder.path());
    CAPTURE(static_cast<int>(first), static_cast<int>(second));
    CHECK(difference(joined, expected) == "");
  }
}

}  // namespace fsdp::testing::checkpointing_test
