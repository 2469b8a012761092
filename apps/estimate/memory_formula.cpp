#include "estimate/memory_formula.h"

#include "base/check.h"
#include "estimate/frozen_segments.h"
#include "estimate/step_simulation.h"

#include <algorithm>
#include <utility>

namespace fsdp::estimate {

namespace {

void check_ranks(const MemoryOptions& options) {
  const int world_size = options.world_size;
  FSDP_CHECK(world_size >= 1, "a world of {} ranks", world_size);
  FSDP_CHECK(options.rank >= 0 && options.rank < world_size, "rank {} of {}", options.rank,
             world_size);
  FSDP_CHECK(options.placement != Placement::single || world_size == 1,
             "placement single is one process, not {}", world_size);
  FSDP_CHECK(options.replicas >= 1 && world_size % options.replicas == 0 &&
                 (options.replicas == 1 || options.placement == Placement::sharded),
             "{} replicas do not fit {} ranks, or not this placement", options.replicas,
             world_size);
  const int group = options.reshard_ranks;
  FSDP_CHECK(options.reshard != Reshard::within ||
                 (group > 1 && group < options.shards() && options.shards() % group == 0),
             "reshard within {} does not fit {} shards", group, options.shards());
}

}  // namespace

void check_options(const nn::TransformerConfig& config, const MemoryOptions& options) {
  check_ranks(options);
  FSDP_CHECK(
      options.batch >= 1 && options.length >= 0 && options.length <= config.max_position_embeddings,
      "a micro-batch of {} sequences of {} tokens; the model takes up to {}", options.batch,
      options.length, config.max_position_embeddings);
  const int per_reduction = options.micro_steps_per_reduction;
  FSDP_CHECK(
      options.micro_steps >= 1 && per_reduction >= 1 && options.micro_steps % per_reduction == 0,
      "{} micro-steps per reduction must divide the {} of a step", per_reduction,
      options.micro_steps);
  FSDP_CHECK(
      options.checkpointing != Checkpointing::around || options.placement == Placement::sharded,
      "checkpointing around units, but nothing is sharded: use Checkpointing::inside");
  FSDP_CHECK((options.offload.params && options.placement == Placement::sharded) ||
                 (!options.offload.params && !options.offload.grads),
             "only shards are offloaded, and gradients only with parameters");
  FSDP_CHECK(options.prefetch_depth >= 0 && options.in_flight_limit >= 0 && options.threads >= 1 &&
                 options.optimizer_states >= 0,
             "prefetch depth {}, in-flight limit {}, {} threads, {} optimizer states",
             options.prefetch_depth, options.in_flight_limit, options.threads,
             options.optimizer_states);
}

namespace {

std::shared_ptr<const SegmentMemory> shared(SegmentMemory segment) {
  return std::make_shared<const SegmentMemory>(std::move(segment));
}

// All blocks are alike.
Segments uniform_segments(const ActivationTable& table, const nn::TransformerConfig& config,
                          const MemoryOptions& options, std::int64_t length) {
  SegmentMemory block = table.block;
  if (options.checkpointing != Checkpointing::none) {
    nn::TransformerConfig one_block = config;
    one_block.num_hidden_layers = 1;
    const auto untaped = segments_on_paper(one_block, options, length, /*has_tape=*/false);
    block = checkpointed(block, untaped[1]);
  }
  Segments all{shared(table.embedding)};
  all.resize(static_cast<std::size_t>(1 + config.num_hidden_layers), shared(std::move(block)));
  all.push_back(shared(table.head));
  return all;
}

Segments segments_of(const ActivationTable& table, const nn::TransformerConfig& config,
                     const MemoryOptions& options, std::int64_t length) {
  if (!options.trains && options.lora_rank == 0) {
    return uniform_segments(table, config, options, length);
  }
  std::vector<SegmentMemory> taped = segments_on_paper(config, options, length);
  if (options.checkpointing != Checkpointing::none) {
    const auto untaped = segments_on_paper(config, options, length, /*has_tape=*/false);
    for (std::size_t i = 1; i + 1 < taped.size(); ++i) {
      taped[i] = checkpointed(taped[i], untaped[i]);
    }
  }
  Segments all;
  for (SegmentMemory& each : taped) all.push_back(shared(std::move(each)));
  return all;
}

Breakdown higher(const Breakdown& a, const Breakdown& b) { return b.total() > a.total() ? b : a; }

}  // namespace

StepSimulation simulation_of(const nn::TransformerConfig& config, const MemoryOptions& options,
                             MemorySpace space) {
  check_options(config, options);
  const std::int64_t length = options.length == 0 ? config.max_position_embeddings : options.length;
  const ActivationTable table = activation_table(
      config, options.batch, length, options.mixed_precision.param_dtype_for(DType::float32));
  return {model_shape(config, options), segments_of(table, config, options, length), table, options,
          space};
}

Breakdown StepMemory::peak() const {
  Breakdown highest;
  for (const MicroStepMemory& micro_step : micro_steps) {
    highest = higher(higher(highest, micro_step.forward_peak), micro_step.backward_peak);
  }
  return higher(highest, step_peak);
}

MemoryFormula::MemoryFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                             MemorySpace space) {
  StepSimulation schedule = simulation_of(config, options, space);
  before_ = schedule.held();
  first_ = schedule.next_step();
  later_ = schedule.next_step();
}

Breakdown peak_of_training(const nn::TransformerConfig& config, const MemoryOptions& options,
                           MemorySpace space) {
  StepSimulation schedule = simulation_of(config, options, space);
  schedule.set_recording(false);
  const Breakdown first = schedule.next_step().peak();
  return higher(first, schedule.next_step().peak());
}

Breakdown MemoryFormula::peak(int steps) const {
  FSDP_CHECK(steps >= 1, "the peak of {} steps", steps);
  return steps == 1 ? first_.peak() : higher(first_.peak(), later_.peak());
}

std::vector<std::int64_t> bound_bytes_by_rank(const nn::TransformerConfig& config,
                                              const MemoryOptions& options, int steps) {
  if (options.placement != Placement::zero1 && options.placement != Placement::zero2) {
    return std::vector(static_cast<std::size_t>(options.world_size),
                       MemoryFormula(config, options).peak(steps).total());
  }
  FSDP_CHECK(steps >= 1, "the peak of {} steps", steps);
  // All ranks in one walk: the steps after the second are like it.
  RankPeaks ranks(options.world_size);
  StepSimulation schedule = simulation_of(config, options);
  schedule.set_recording(false);
  schedule.count_ranks(ranks);
  for (int step = 0; step < std::min(steps, 2); ++step) schedule.next_step();
  return ranks.peaks();
}

std::int64_t bound_bytes(const nn::TransformerConfig& config, const MemoryOptions& options,
                         int steps) {
  return std::ranges::max(bound_bytes_by_rank(config, options, steps));
}

std::int64_t evaluation_bound_bytes(const nn::TransformerConfig& config,
                                    const MemoryOptions& options) {
  return simulation_of(config, options).evaluation_peak().total();
}

}  // namespace fsdp::estimate
