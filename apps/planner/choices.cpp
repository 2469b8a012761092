#include "planner/choices.h"

#include <fmt/format.h>

namespace fsdp::planner {

using estimate::Checkpointing;
using estimate::MemoryOptions;
using estimate::Placement;
using estimate::Reshard;

namespace {

std::string strategy_of(Placement placement) {
  switch (placement) {
    case Placement::single:
      return "single";
    case Placement::ddp:
      return "ddp";
    case Placement::zero1:
      return "zero1";
    case Placement::zero2:
      return "zero2";
    case Placement::sharded:
      return "fsdp";
  }
  return {};
}

std::string reshard_of(const MemoryOptions& options) {
  if (options.reshard == Reshard::within) return fmt::format("within {}", options.reshard_ranks);
  return options.reshard == Reshard::always ? "always" : "never";
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
  const bool is_sharded = options.placement == Placement::sharded;
  switch (choice) {
    case Choice::strategy:
      return strategy_of(options.placement);
    case Choice::ranks:
      return std::to_string(options.world_size);
    case Choice::replicas:
      return is_sharded ? std::to_string(options.replicas) : "";
    case Choice::reshard:
      return is_sharded ? reshard_of(options) : "";
    case Choice::prefetch:
      return is_sharded ? std::to_string(options.prefetch_depth) : "";
    case Choice::checkpointing:
      return options.checkpointing == Checkpointing::none ? "none" : "block";
    case Choice::precision:
      return precision_of(options.mixed_precision);
    case Choice::offload:
      if (!is_sharded) return "";
      return options.offload.grads ? "all" : options.offload.params ? "params" : "none";
    case Choice::micro_batch:
      return std::to_string(options.batch);
  }
  return {};
}

std::string describe(const MemoryOptions& options) {
  std::string text = fmt::format("{} over {} rank{}", value_of(Choice::strategy, options),
                                 options.world_size, options.world_size == 1 ? "" : "s");
  if (options.placement == Placement::sharded) {
    if (options.replicas > 1) {
      text += fmt::format(" ({} replicas of {} shards)", options.replicas, options.shards());
    }
    text += fmt::format(", reshard {}, prefetch {}", reshard_of(options), options.prefetch_depth);
    if (options.offload.params) text += ", offload " + value_of(Choice::offload, options);
  }
  text += fmt::format(", {}, {} x {} sequence{} per rank", precision_of(options.mixed_precision),
                      options.micro_steps, options.batch, options.batch == 1 ? "" : "s");
  if (options.checkpointing != Checkpointing::none) text += ", blocks checkpointed";
  return text;
}

}  // namespace fsdp::planner
