#include "optim/recipe.h"

#include "base/printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

namespace fsdp::optim {
namespace {

template <class... Args>
void refuse_recipe_if(bool is_wrong, const char* key, fmt::format_string<Args...> why,
                      Args&&... args) {
  if (is_wrong) throw RecipeError(key, fmt::format(why, std::forward<Args>(args)...));
}

void validate_ranks(const Recipe& recipe) {
  const auto& [strategy, ranks, replicas] =
      std::tie(recipe.strategy, recipe.ranks, recipe.replicas);
  refuse_recipe_if(ranks < 1, "parallel.ranks", "is {}, must be at least 1", ranks);
  refuse_recipe_if(strategy == Strategy::single && ranks != 1, "parallel.ranks",
                   "is {}, but strategy \"single\" is one process; use ranks 1, or strategy ddp, "
                   "zero1, zero2 or fsdp",
                   ranks);
  const char* degree = "parallel.data_parallel_replicate_degree";
  refuse_recipe_if(replicas < 1 || ranks % replicas != 0, degree,
                   "is {}, must divide parallel.ranks {}", replicas, ranks);
  refuse_recipe_if(replicas > 1 && strategy != Strategy::fsdp, degree,
                   "is {}, but strategy {} has no shards to replicate; use fsdp", replicas,
                   name_of(strategy));
}

void validate_offload(const Recipe& recipe) {
  const Offload& offload = recipe.sharding.offload;
  const char* strategy = name_of(recipe.strategy);
  refuse_recipe_if(offload.params && recipe.is_zero(), "parallel.offload_params",
                   "is true, but with strategy {} each forward reads whole parameters on every "
                   "rank; use fsdp (ZeRO-3), or parallel.offload_optimizer",
                   strategy);
  refuse_recipe_if(offload.params && recipe.strategy != Strategy::fsdp, "parallel.offload_params",
                   "is true, but strategy {} has no shards to move; use fsdp", strategy);
  refuse_recipe_if(offload.optimizer && recipe.strategy == Strategy::fsdp,
                   "parallel.offload_optimizer",
                   "is true, but the shards of fsdp are the optimizer's masters, and move together "
                   "with its state; use parallel.offload_params");
  refuse_recipe_if(offload.optimizer && !recipe.is_zero(), "parallel.offload_optimizer",
                   "is true, but strategy {} divides no optimizer state among ranks; use zero1 or "
                   "zero2, or fsdp with parallel.offload_params",
                   strategy);
  refuse_recipe_if(offload.grads && recipe.strategy == Strategy::zero1, "parallel.offload_grads",
                   "is true, but with strategy zero1 every rank holds whole gradients, which "
                   "backward writes; use zero2, or parallel.offload_optimizer alone");
  refuse_recipe_if(offload.grads && !offload.is_on(), "parallel.offload_grads",
                   "is true, but {} is false: the optimizer steps where {}, and needs their "
                   "gradients there; set neither",
                   recipe.is_zero() ? "parallel.offload_optimizer" : "parallel.offload_params",
                   recipe.is_zero() ? "the masters are" : "the parameters are");
}

void validate_sharding(const Recipe& recipe) {
  const Sharding& sharding = recipe.sharding;
  const int shards = recipe.shards();
  refuse_recipe_if(
      !sharding.reshard_after_forward.fits(shards), "parallel.reshard_after_forward",
      "is {}, must be true, false, or a number that divides {} and lies strictly between 1 and {}",
      sharding.reshard_after_forward.ranks,
      recipe.replicas == 1 ? fmt::format("parallel.ranks {}", recipe.ranks)
                           : fmt::format("the {} ranks of a replica", shards),
      shards);
  refuse_recipe_if(sharding.prefetch_depth < 0, "parallel.prefetch_depth",
                   "is {}, must be 0 (none) or more", sharding.prefetch_depth);
  refuse_recipe_if(sharding.in_flight_limit < 0, "parallel.in_flight_limit",
                   "is {}, must be 0 (the depth) or more", sharding.in_flight_limit);
}

void validate_checkpointing(const Recipe& recipe) {
  static constexpr std::array<std::string_view, 8> kOperations{
      "q_proj", "k_proj", "v_proj", "self_attn", "o_proj", "gate_proj", "up_proj", "down_proj"};
  refuse_recipe_if(
      recipe.checkpointing == Checkpointing::around && recipe.strategy != Strategy::fsdp,
      "training.activation_checkpoint",
      "is around units, but strategy {} has no units; checkpoint inside blocks",
      name_of(recipe.strategy));
  refuse_recipe_if(recipe.checkpoint_every < 1, "training.checkpoint_every",
                   "is {}, must be at least 1", recipe.checkpoint_every);
  for (const std::string& each : recipe.kept_operations) {
    refuse_recipe_if(std::ranges::find(kOperations, each) == kOperations.end(),
                     "training.kept_operations",
                     "has '{}', which is no operation of a block; use some of {}", printable(each),
                     fmt::join(kOperations, ", "));
  }
}

}  // namespace

const char* name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::single:
      return "single";
    case Strategy::ddp:
      return "ddp";
    case Strategy::zero1:
      return "zero1";
    case Strategy::zero2:
      return "zero2";
    case Strategy::fsdp:
      break;
  }
  return "fsdp";
}

int OptimizerChoice::states() const {
  return static_cast<int>(ops::optimizer_named(name).state_names(options).size());
}

bool OptimizerChoice::looks_at(const std::string& key) const {
  const ops::OptimizerRow& row = ops::optimizer_named(name);
  return std::ranges::none_of(ops::optimizer_options(), [&](const ops::OptimizerOption& each) {
    return key == std::string("optimizer.") + each.name && !row.looks_at(each.name);
  });
}

bool OptimizerChoice::decays(const std::string& path) const {
  return decay_norms || !path.ends_with("norm.weight");
}

bool Recipe::trains(const std::string& path) const {
  const auto is_within = [&](const std::vector<std::string>& prefixes) {
    return std::ranges::any_of(prefixes,
                               [&](const std::string& each) { return path.starts_with(each); });
  };
  if (is_within(trained)) return true;
  if (is_within(frozen)) return false;
  return !has_lora() || is_lora(path);
}

StepPlan Recipe::plan() const {
  const double loss_scale = prescale ? prescale_of(std::int64_t{ranks} * micro_steps) : 1;
  return {micro_steps, micro_steps_per_reduction, loss_scale};
}

// A mean above the sum can overflow: only a pass before the optimizer sees that in time.
bool Recipe::has_mean_pass(const StepPlan& step) const { return step.mean_factor(ranks) > 1; }

void Recipe::validate() const {
  validate_ranks(*this);
  validate_checkpointing(*this);
  validate_sharding(*this);
  validate_offload(*this);
  refuse_recipe_if(!StepPlan{micro_steps, micro_steps_per_reduction}.is_valid(), "training.no_sync",
                   "reduces after {} micro-steps, must divide the {} of a step",
                   micro_steps_per_reduction, micro_steps);
  refuse_recipe_if(has_lora() && !trained.empty(), "lora.rank",
                   "is {}, but the recipe also trains {}, and with LoRA the rest of the model has "
                   "no masters in float32; train adapters alone, or use rank 0",
                   lora.rank, fmt::join(trained, ", "));
}

}  // namespace fsdp::optim
