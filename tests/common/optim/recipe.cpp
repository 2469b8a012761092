// What a recipe refuses: the key and the sentence apart.
#include "optim/recipe.h"

#include "support/catch.h"

namespace fsdp::optim::recipe_test {

namespace {

/// "key | why", or "" for a recipe that holds together.
std::string refusal(const Recipe& recipe) {
  try {
    recipe.validate();
  } catch (const RecipeError& error) {
    CHECK(error.what() == error.key() + ": " + error.why());
    return error.key() + " | " + error.why();
  }
  return {};
}

Recipe sharded(int ranks, int replicas = 1) {
  return {.strategy = Strategy::fsdp, .ranks = ranks, .replicas = replicas};
}

}  // namespace

TEST_CASE("a recipe accepts what fits together") {
  CHECK(refusal({}).empty());
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      CAPTURE(name_of(strategy), ranks);
      CHECK(refusal({.strategy = strategy, .ranks = ranks}).empty());
    }
  }
  Recipe all = sharded(8, 2);
  all.sharding.reshard_after_forward = ReshardAfterForward::within(2);
  all.sharding.offload = {.params = true, .grads = true};
  all.checkpointing = Checkpointing::around;
  all.micro_steps = all.micro_steps_per_reduction = 3;
  CHECK(refusal(all).empty());
}

TEST_CASE("ranks, replicas and subgroups must divide one another") {
  CHECK(refusal({.ranks = 2}) ==
        "parallel.ranks | is 2, but strategy \"single\" is one process; use ranks 1, or strategy "
        "ddp, zero1, zero2 or fsdp");
  CHECK(refusal(sharded(0)) == "parallel.ranks | is 0, must be at least 1");
  const std::string degree = "parallel.data_parallel_replicate_degree | is ";
  CHECK(refusal(sharded(4, 3)) == degree + "3, must divide parallel.ranks 4");
  CHECK(refusal(sharded(4, 0)) == degree + "0, must divide parallel.ranks 4");
  CHECK(refusal({.strategy = Strategy::zero1, .ranks = 4, .replicas = 2}) ==
        degree + "2, but strategy zero1 has no shards to replicate; use fsdp");

  const auto within = [](int group, int ranks, int replicas) {
    Recipe recipe = sharded(ranks, replicas);
    recipe.sharding.reshard_after_forward = ReshardAfterForward::within(group);
    return refusal(recipe);
  };
  CHECK(within(4, 4, 1) ==
        "parallel.reshard_after_forward | is 4, must be true, false, or a number that divides "
        "parallel.ranks 4 and lies strictly between 1 and 4");
  CHECK(
      within(3, 8, 2).ends_with("divides the 4 ranks of a replica and lies strictly between 1 "
                                "and 4"));
  CHECK(!within(1, 4, 1).empty());
  CHECK(!within(0, 4, 1).empty());
  CHECK(within(2, 4, 1).empty());
}

TEST_CASE("only shards are offloaded, and gradients only with their parameters") {
  Recipe recipe = sharded(2);
  recipe.sharding.offload.grads = true;
  CHECK(refusal(recipe).starts_with("parallel.offload_grads | is true, but "));
  recipe.sharding.offload.params = true;
  CHECK(refusal(recipe).empty());
  recipe.strategy = Strategy::zero2;
  CHECK(refusal(recipe) ==
        "parallel.offload_params | is true, but with strategy zero2 each forward reads whole "
        "parameters on every rank; use fsdp (ZeRO-3), or parallel.offload_optimizer");
  recipe.strategy = Strategy::ddp;
  CHECK(refusal(recipe) ==
        "parallel.offload_params | is true, but strategy ddp has no shards to move; use fsdp");
}

TEST_CASE("the optimizer alone is offloaded where ranks own parts of whole parameters") {
  const auto offloaded = [](Strategy strategy, bool grads) {
    Recipe recipe{.strategy = strategy, .ranks = strategy == Strategy::single ? 1 : 2};
    recipe.sharding.offload = {.grads = grads, .optimizer = true};
    return refusal(recipe);
  };
  CHECK(offloaded(Strategy::zero1, false).empty());
  CHECK(offloaded(Strategy::zero2, false).empty());
  CHECK(offloaded(Strategy::zero2, true).empty());
  CHECK(offloaded(Strategy::zero1, true) ==
        "parallel.offload_grads | is true, but with strategy zero1 every rank holds whole "
        "gradients, which backward writes; use zero2, or parallel.offload_optimizer alone");
  CHECK(offloaded(Strategy::fsdp, false) ==
        "parallel.offload_optimizer | is true, but the shards of fsdp are the optimizer's masters, "
        "and move together with its state; use parallel.offload_params");
  for (const Strategy strategy : {Strategy::single, Strategy::ddp}) {
    CHECK(offloaded(strategy, false) ==
          std::string("parallel.offload_optimizer | is true, but strategy ") + name_of(strategy) +
              " divides no optimizer state among ranks; use zero1 or zero2, or fsdp with "
              "parallel.offload_params");
  }
  Recipe alone{.strategy = Strategy::zero2, .ranks = 2};
  alone.sharding.offload.grads = true;
  CHECK(refusal(alone) ==
        "parallel.offload_grads | is true, but parallel.offload_optimizer is false: the optimizer "
        "steps where the masters are, and needs their gradients there; set neither");
}

TEST_CASE("units are checkpointed around only where there are units, and L divides M") {
  CHECK(refusal({.strategy = Strategy::ddp, .checkpointing = Checkpointing::inside}).empty());
  CHECK(refusal({.strategy = Strategy::ddp, .checkpointing = Checkpointing::around}) ==
        "training.activation_checkpoint | is around units, but strategy ddp has no units; "
        "checkpoint inside blocks");
  CHECK(refusal({.micro_steps = 4, .micro_steps_per_reduction = 3}) ==
        "training.no_sync | reduces after 3 micro-steps, must divide the 4 of a step");
  CHECK(!refusal({.micro_steps = 0}).empty());
  CHECK(refusal({.checkpoint_every = 0}) == "training.checkpoint_every | is 0, must be at least 1");
  CHECK(refusal({.kept_operations = {"q_proj", "lm_head"}}) ==
        "training.kept_operations | has 'lm_head', which is no operation of a block; use some of "
        "q_proj, k_proj, v_proj, self_attn, o_proj, gate_proj, up_proj, down_proj");
}

TEST_CASE("units are gathered ahead by a number, and LoRA trains adapters alone") {
  Recipe recipe = sharded(2);
  recipe.sharding.prefetch_depth = -1;
  CHECK(refusal(recipe) == "parallel.prefetch_depth | is -1, must be 0 (none) or more");
  recipe.sharding = {.in_flight_limit = -2};
  CHECK(refusal(recipe) == "parallel.in_flight_limit | is -2, must be 0 (the depth) or more");
  recipe.sharding = {};
  recipe.lora.rank = 4;
  CHECK(refusal(recipe).empty());
  recipe.trained = {"model.norm", "lm_head"};
  CHECK(refusal(recipe) ==
        "lora.rank | is 4, but the recipe also trains model.norm, lm_head, and with LoRA the rest "
        "of the model has no masters in float32; train adapters alone, or use rank 0");
}

TEST_CASE("a sum is a mean if the loss was scaled by one over the number of micro-batches") {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (int micro_steps = 1; micro_steps <= 60; ++micro_steps) {
      const StepPlan plan{.micro_steps = micro_steps, .loss_scale = 1.0 / (ranks * micro_steps)};
      CHECK(plan.mean_factor(ranks) == 1);
    }
  }
  CHECK(StepPlan{.micro_steps = 3, .loss_scale = 8}.mean_factor(2) == 1.0 / 6 / 8);
}

TEST_CASE("a mean is a pass only if it may be larger than the sum") {
  Recipe recipe = sharded(4);
  CHECK_FALSE(recipe.has_mean_pass());
  recipe.micro_steps = 3;
  CHECK_FALSE(recipe.has_mean_pass());
  recipe.prescale = true;  // 12/16 is left
  CHECK(recipe.has_mean_pass());
  CHECK_FALSE(recipe.has_mean_pass({.micro_steps = 3, .loss_scale = 1024}));
  CHECK_FALSE(recipe.has_mean_pass({.micro_steps = 2, .loss_scale = 0.125}));
  CHECK(recipe.has_mean_pass({.micro_steps = 2, .loss_scale = 0.0625}));  // times 2 may overflow
}

}  // namespace fsdp::optim::recipe_test
