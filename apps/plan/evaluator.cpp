#include "plan/evaluator.h"

#include "paper/memory_formula.h"
#include "paper/model_shape.h"
#include "paper/time_formula.h"
#include "paper/whole_walk.h"
#include "parallel/partition.h"

#include <algorithm>
#include <vector>

namespace fsdp::plan {

using paper::MemoryOptions;
using paper::MemorySpace;

const paper::KernelTimes& Evaluator::kernels_for(const MemoryOptions& options) {
  const std::int64_t length = options.length_of(model_);
  const DType dtype = options.recipe.precision.param_dtype_for(DType::float32);
  const bool keeps = options.recipe.checkpointing == optim::Checkpointing::operations;
  const auto [entry, is_new] = kernels_.try_emplace({options.batch, length, dtype, keeps});
  if (is_new) entry->second = paper::kernel_times(model_, options, machine_);
  return entry->second;
}

// When a rank's bytes are held matters too, so the rank that owns most may have a lower peak.
void Evaluator::choose_rank(MemoryOptions& options, MemorySpace space) const {
  options.rank = 0;
  if (!options.recipe.is_zero()) return;
  const std::vector<std::int64_t> peaks = paper::bound_bytes_by_rank(model_, options, 2, space);
  options.rank = static_cast<int>(std::ranges::max_element(peaks) - peaks.begin());
}

int Evaluator::busiest_rank(const MemoryOptions& options) {
  if (!options.recipe.is_zero()) return options.rank;
  const auto [entry, is_new] =
      busiest_.try_emplace({options.recipe.ranks, options.recipe.zero.partition}, 0);
  if (is_new) {
    const paper::OwnedSlices slices =
        paper::owned_slices(paper::model_shape(model_, options).whole_parts, options);
    const std::vector<std::int64_t> loads = parallel::loads_of(slices, options.recipe.ranks);
    entry->second = static_cast<int>(std::ranges::max_element(loads) - loads.begin());
  }
  return entry->second;
}

Breakdown Evaluator::memory(MemoryOptions options) {
  check_bytes(model_, options);
  choose_rank(options);
  return paper::peak_of_training(model_, options);
}

Outcome Evaluator::in_use(MemoryOptions options) const {
  check_bytes(model_, options);
  Outcome outcome;
  if (options.recipe.sharding.offload.is_on()) {
    choose_rank(options, MemorySpace::host);
    outcome.host = paper::peak_of_training(model_, options, MemorySpace::host);
  }
  choose_rank(options);
  outcome.device = paper::peak_of_training(model_, options);
  outcome.options = std::move(options);
  return outcome;
}

void Evaluator::add_beside(Outcome& outcome) const {
  if (!knows_beside()) return;
  std::int64_t needed = needed_(model_, outcome.options);
  if (outcome.options.rank != 0) {
    MemoryOptions of_first = outcome.options;
    of_first.rank = 0;
    needed = std::max(needed, needed_(model_, of_first));
  }
  outcome.beside = needed - outcome.device.total();
}

void Evaluator::add_time(Outcome& outcome) {
  MemoryOptions options = outcome.options;
  options.framework = paper::Framework::unshard;  // of others, the times are not known
  options.habits = {};
  check_time(model_, options, machine_);
  options.rank = outcome.busiest_rank = busiest_rank(options);
  outcome.time = paper::TimeFormula(model_, options, machine_, kernels_for(options)).step(1);
}

Outcome Evaluator::evaluate(const MemoryOptions& options) {
  Outcome outcome = in_use(options);
  add_beside(outcome);
  add_time(outcome);
  return outcome;
}

}  // namespace fsdp::plan
