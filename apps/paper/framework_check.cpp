#include "optim/recipe.h"
#include "paper/memory_options.h"

#include <fmt/format.h>

namespace fsdp::paper {

std::optional<Unknown> unknown_of(const MemoryOptions& options) {
  if (options.framework == Framework::unshard) return std::nullopt;
  const optim::Recipe& recipe = options.recipe;
  const optim::Sharding& sharding = recipe.sharding;
  const std::string_view name = paper::name_of(options.framework);
  if (recipe.strategy != Strategy::fsdp) {
    return Unknown{"parallel.strategy",
                   fmt::format("is {}, but what {} holds is known for fsdp; use it, or --framework "
                               "unshard",
                               optim::name_of(recipe.strategy), name)};
  }
  if (sharding.reshard_after_forward.is_within()) {
    return Unknown{"parallel.reshard_after_forward",
                   fmt::format("is {}, but of {} true and false are known; use one of them",
                               sharding.reshard_after_forward.ranks, name)};
  }
  if (sharding.prefetch_depth != 1) {
    return Unknown{"parallel.prefetch_depth",
                   fmt::format("is {}, but {} gathers one unit ahead, in backward; leave it out",
                               sharding.prefetch_depth, name)};
  }
  if (sharding.offload.params != sharding.offload.grads) {
    return Unknown{"parallel.offload_grads",
                   fmt::format("and parallel.offload_params differ, but {} offloads both or none; "
                               "set both",
                               name)};
  }
  if (recipe.micro_steps_per_reduction > 1) {
    return Unknown{"training.no_sync",
                   "is true, but torchtitan reduces gradients in every micro-step; leave it out"};
  }
  if (recipe.checkpointing == Checkpointing::around) {
    return Unknown{"training.activation_checkpoint",
                   "is around, but torchtitan checkpoints inside of units; use block"};
  }
  if (recipe.kept_operations != optim::Recipe{}.kept_operations) {
    return Unknown{"training.kept_operations",
                   "is set, but torchtitan's policy keeps what it keeps; leave it out"};
  }
  return std::nullopt;
}

void check_framework(const MemoryOptions& options) {
  if (const auto unknown = unknown_of(options)) {
    throw optim::RecipeError(unknown->key, unknown->why);
  }
}

}  // namespace fsdp::paper
