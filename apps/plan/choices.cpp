#include "plan/choices.h"

#include <fmt/format.h>

namespace fsdp::plan {

using paper::Checkpointing;
using paper::MemoryOptions;
using paper::Strategy;

namespace {

std::string reshard_of(const MemoryOptions& options) {
  const ReshardAfterForward& reshard = options.recipe.sharding.reshard_after_forward;
  if (reshard.is_within()) return fmt::format("within {}", reshard.ranks);
  return reshard.kind == ReshardAfterForward::Kind::always ? "always" : "never";
}

std::string precision_of(const optim::MixedPrecision& policy) {
  const DType param = policy.param_dtype_for(DType::float32);
  const DType sums = policy.reduce_dtype_for(DType::float32);
  if (param == sums) return std::string(fsdp::name_of(param));
  return fmt::format("{} with sums in {}", fsdp::name_of(param), fsdp::name_of(sums));
}

}  // namespace

std::string_view name_of(Choice choice) {
  static constexpr std::array<std::string_view, kChoices.size()> kNames{
      "strategy",      "ranks",     "replicas", "reshard",    "prefetch",
      "checkpointing", "precision", "offload",  "micro-batch"};
  return kNames.at(static_cast<std::size_t>(choice));
}

std::string value_of(Choice choice, const MemoryOptions& options) {
  const bool is_sharded = options.recipe.strategy == Strategy::fsdp;
  const optim::Offload& offload = options.recipe.sharding.offload;
  switch (choice) {
    case Choice::strategy:
      return name_of(options.recipe.strategy);
    case Choice::ranks:
      return std::to_string(options.recipe.ranks);
    case Choice::replicas:
      return is_sharded ? std::to_string(options.recipe.replicas) : "";
    case Choice::reshard:
      return is_sharded ? reshard_of(options) : "";
    case Choice::prefetch:
      return is_sharded ? std::to_string(options.recipe.sharding.prefetch_depth) : "";
    case Choice::checkpointing:
      return options.recipe.checkpointing == Checkpointing::none         ? "none"
             : options.recipe.checkpointing == Checkpointing::operations ? "operations"
                                                                         : "block";
    case Choice::precision:
      return precision_of(options.recipe.precision);
    case Choice::offload:
      if (!is_sharded && !options.recipe.is_zero()) return "";
      return offload.grads       ? "all"
             : offload.params    ? "params"
             : offload.optimizer ? "optimizer"
                                 : "none";
    case Choice::micro_batch:
      return std::to_string(options.batch);
  }
  return {};
}

std::string describe(const MemoryOptions& options) {
  std::string text = fmt::format("{} over {} rank{}", value_of(Choice::strategy, options),
                                 options.recipe.ranks, options.recipe.ranks == 1 ? "" : "s");
  if (options.recipe.strategy == Strategy::fsdp) {
    if (options.recipe.replicas > 1) {
      text += fmt::format(" ({} replicas of {} shards)", options.recipe.replicas,
                          options.recipe.shards());
    }
    text += fmt::format(", reshard {}, prefetch {}", reshard_of(options),
                        options.recipe.sharding.prefetch_depth);
  }
  if (options.recipe.sharding.offload.is_on()) {
    text += ", offload " +
            (options.zero.keeps_shards ? "optimizer" : value_of(Choice::offload, options));
  }
  text += fmt::format(", {}, {} x {} sequence{} per rank", precision_of(options.recipe.precision),
                      options.recipe.micro_steps, options.batch, options.batch == 1 ? "" : "s");
  if (options.recipe.checkpointing != Checkpointing::none) {
    text += options.recipe.checkpointing == Checkpointing::operations
                ? ", blocks checkpointed by operations"
                : ", blocks checkpointed";
    if (const int n = options.recipe.checkpoint_every; n > 1) text += fmt::format(", 1 of {}", n);
  }
  return text;
}

}  // namespace fsdp::plan
