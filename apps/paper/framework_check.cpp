#include "optim/recipe.h"
#include "paper/memory_options.h"

#include <fmt/format.h>

namespace fsdp::paper {

namespace {

std::optional<Unknown> unknown_of_deepspeed(const optim::Recipe& recipe) {
  const optim::Sharding& sharding = recipe.sharding;
  const auto element = [](DType dtype) { return size_of(dtype); };
  const struct {
    bool is_unknown;
    const char* key;
    const char* why;
  } table[] = {
      {recipe.replicas > 1, "parallel.data_parallel_replicate_degree",
       "is set, but of deepspeed one group of shards is known, and MiCS is not; leave it out"},
      {sharding.reshard_after_forward != ReshardAfterForward::always(),
       "parallel.reshard_after_forward",
       "is set, but deepspeed decides it by stage3_max_reuse_distance; leave it out"},
      {sharding.prefetch_depth != 1, "parallel.prefetch_depth",
       "is set, but deepspeed decides it by stage3_prefetch_bucket_size; leave it out"},
      {recipe.strategy == Strategy::zero2 && sharding.offload.optimizer && !sharding.offload.grads,
       "parallel.offload_optimizer",
       "is true without parallel.offload_grads, but deepspeed offloads both; set both"},
      {recipe.micro_steps_per_reduction > 1, "training.no_sync",
       "is true, but in deepspeed the stage decides when gradients are reduced; leave it out"},
      {recipe.checkpointing == Checkpointing::around ||
           recipe.checkpointing == Checkpointing::operations || recipe.checkpoint_every > 1,
       "training.activation_checkpoint",
       "is set, but Hugging Face's Llama checkpoints every block as a whole; use block"},
      {!recipe.trains_all(), "lora.rank",
       "is set, but of deepspeed only the training of all parameters is known, not LoRA; leave it "
       "out, or use --framework unshard"},
      {recipe.zero.reductions.compression.has_value(), "parallel.gradient_compression",
       "is set, but deepspeed has communication_data_type for it; leave it out"},
      {recipe.zero.broadcast_fp16, "parallel.broadcast_fp16",
       "is true, but deepspeed gathers parameters in the model's format; leave it out"},
      {element(recipe.precision.reduce_dtype_for(DType::float32)) <
           element(recipe.precision.param_dtype_for(DType::float32)),
       "training.mixed_precision_reduce",
       "has fewer bits than the model's format, which is not known of deepspeed; leave it out"}};
  for (const auto& [is_unknown, key, why] : table) {
    if (is_unknown) return Unknown{key, why};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Unknown> unknown_of(const MemoryOptions& options) {
  if (options.framework == Framework::unshard) return std::nullopt;
  if (options.framework == Framework::deepspeed) return unknown_of_deepspeed(options.recipe);
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
  if (options.habits.computes_float8 && !recipe.trains_all()) {
    return Unknown{"lora.rank",
                   "is set, but of products in float8 only the training of all parameters is "
                   "known; leave one of them out"};
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
