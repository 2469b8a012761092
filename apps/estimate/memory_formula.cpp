#include "estimate/memory_formula.h"

#include "base/check.h"
#include "estimate/books.h"
#include "estimate/step_walk.h"

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

Breakdown higher(const Breakdown& a, const Breakdown& b) { return b.total() > a.total() ? b : a; }

}  // namespace

Breakdown StepMemory::peak() const {
  Breakdown highest;
  for (const MicroStepMemory& micro_step : micro_steps) {
    highest = higher(higher(highest, micro_step.forward_peak), micro_step.backward_peak);
  }
  return higher(highest, step_peak);
}

MemoryFormula::MemoryFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                             MemorySpace space) {
  Books books(options);
  books.open_bytes(space);
  StepWalk walk(config, options, books);
  before_ = books.reported().now();
  first_ = walk.next_step();
  later_ = walk.next_step();
}

Breakdown peak_of_training(const nn::TransformerConfig& config, const MemoryOptions& options,
                           MemorySpace space) {
  Books books(options);
  books.open_bytes(space);
  StepWalk walk(config, options, books);
  walk.set_recording(false);
  const Breakdown first = walk.next_step().peak();
  return higher(first, walk.next_step().peak());
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
  Books books(options);
  books.open_bytes(MemorySpace::device, &ranks);
  StepWalk walk(config, options, books);
  walk.set_recording(false);
  for (int step = 0; step < std::min(steps, 2); ++step) walk.next_step();
  return ranks.peaks();
}

std::int64_t bound_bytes(const nn::TransformerConfig& config, const MemoryOptions& options,
                         int steps) {
  return std::ranges::max(bound_bytes_by_rank(config, options, steps));
}

std::int64_t evaluation_bound_bytes(const nn::TransformerConfig& config,
                                    const MemoryOptions& options) {
  Books books(options);
  books.open_bytes();
  return StepWalk(config, options, books).evaluation_peak().total();
}

}  // namespace fsdp::estimate
