#include "train/bound.h"

#include "estimate/memory_formula.h"
#include "estimate/wire_formula.h"
#include "train/strategy.h"

#include <algorithm>
#include <map>
#include <string>

namespace fsdp::train {

estimate::MemoryOptions memory_options(const TrainConfig& config) {
  estimate::MemoryOptions options;
  static const std::map<std::string, estimate::Placement> placements = {
      {"single", estimate::Placement::single},
      {"ddp", estimate::Placement::ddp},
      {"zero1", estimate::Placement::zero1},
      {"zero2", estimate::Placement::zero2},
      {"fsdp", estimate::Placement::sharded}};
  options.placement = placements.at(config.parallel.strategy);
  options.zero = zero_options(config);
  options.bucket_bytes = static_cast<std::int64_t>(bucket_bytes(config));
  options.world_size = config.world_size();
  options.replicas = static_cast<int>(config.parallel.replicate_degree);
  options.batch = config.training.local_batch_size;
  options.length = config.sequence_length();
  options.micro_steps = plan_of(config).micro_steps;
  options.micro_steps_per_reduction = plan_of(config).micro_steps_per_reduction;
  options.threads = static_cast<int>(config.parallel.threads_per_rank);
  options.clips = config.training.max_norm > 0;
  options.mixed_precision = config.mixed_precision();
  options.optimizer_states =
      static_cast<int>(make_optimizer(config.optimizer)->state_names().size());
  options.update_flops = estimate::update_flops(config.optimizer.name);
  const ReshardAfterForward& reshard = config.parallel.reshard_after_forward;
  using Kind = ReshardAfterForward::Kind;
  options.reshard = reshard.kind == Kind::always  ? estimate::Reshard::always
                    : reshard.kind == Kind::never ? estimate::Reshard::never
                                                  : estimate::Reshard::within;
  options.reshard_ranks = reshard.ranks;
  options.prefetch_depth = static_cast<int>(config.parallel.prefetch_depth);
  options.in_flight_limit = static_cast<int>(config.parallel.in_flight_limit);
  options.offload = config.offload();
  if (!config.optimizer.decay_norms)
    options.decays = [&config](const std::string& path) { return decays(config.optimizer, path); };
  if (config.checkpoints_blocks()) options.checkpointing = estimate::Checkpointing::inside;
  options.lora_rank = config.lora.rank;
  options.lora_targets = config.lora_options().targets;
  return options;
}

std::vector<std::int64_t> bound_bytes_by_rank(const TrainConfig& config, Work work) {
  const estimate::MemoryOptions options = memory_options(config);
  if (work == Work::evaluation) {
    return std::vector(static_cast<std::size_t>(config.parallel.ranks),
                       estimate::evaluation_bound_bytes(config.model, options));
  }
  // An evaluation needs no more than a forward of training, but it may follow the first step: then
  // there is already the state of the optimizer, as in the second.
  const std::int64_t least = config.training.eval_every > 0 ? 2 : 1;
  return estimate::bound_bytes_by_rank(config.model, options,
                                       static_cast<int>(std::max(config.training.steps, least)));
}

std::int64_t bound_bytes(const TrainConfig& config, Work work) {
  return std::ranges::max(bound_bytes_by_rank(config, work));
}

std::int64_t received_bytes_per_step(const TrainConfig& config, bool is_skipped) {
  const estimate::WireBytes wire = estimate::wire_bytes(config.model, memory_options(config));
  const std::int64_t numbers = plan_of(config).micro_steps + 2 + (config.scales_loss() ? 1 : 0);
  const std::int64_t told = (config.parallel.ranks - 1) * numbers * 4;
  return wire.total() + told - (is_skipped ? wire.norm + wire.broadcasts : 0);
}

}  // namespace fsdp::train
