#include "train/bound.h"

#include "paper/memory_formula.h"
#include "paper/wire_formula.h"

#include <algorithm>
#include <string>

namespace fsdp::train {

paper::MemoryOptions memory_options(const config::TrainConfig& config) {
  return {.recipe = config.recipe,
          .batch = config.training.local_batch_size,
          .length = config.sequence_length(),
          .threads = static_cast<int>(config.parallel.threads_per_rank)};
}

std::vector<std::int64_t> bound_bytes_by_rank(const config::TrainConfig& config, Purpose purpose,
                                              paper::MemorySpace space) {
  const paper::MemoryOptions options = memory_options(config);
  if (purpose == Purpose::evaluation) {
    return paper::evaluation_bounds_by_rank(config.model, options, space);
  }
  // An evaluation needs no more than a forward of training, but it may follow the first step: then
  // there is already the state of the optimizer, as in the second.
  const std::int64_t least = config.training.eval_every > 0 ? 2 : 1;
  return paper::bound_bytes_by_rank(
      config.model, options, static_cast<int>(std::max(config.training.steps, least)), space);
}

std::int64_t bound_bytes(const config::TrainConfig& config, Purpose purpose) {
  return std::ranges::max(bound_bytes_by_rank(config, purpose));
}

std::int64_t received_bytes_per_step(const config::TrainConfig& config, bool is_skipped) {
  const paper::WireBytes wire = paper::wire_bytes(config.model, memory_options(config));
  const std::int64_t numbers =
      config.recipe.plan().micro_steps + 2 + (config.scales_loss() ? 1 : 0);
  const std::int64_t told = (config.recipe.ranks - 1) * numbers * 4;
  return wire.total() + told - (is_skipped ? wire.norm + wire.broadcasts : 0);
}

}  // namespace fsdp::train
