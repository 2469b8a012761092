#include "paper/memory_formula.h"

#include "base/check.h"
#include "paper/books.h"
#include "paper/formats.h"
#include "paper/model_shape.h"
#include "paper/step_walk.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

void check_options(const nn::TransformerConfig& config, const MemoryOptions& options) {
  const optim::Recipe& recipe = options.recipe;
  recipe.validate();
  check_framework(options);
  FSDP_CHECK(options.rank >= 0 && options.rank < recipe.ranks, "rank {} of {}", options.rank,
             recipe.ranks);
  FSDP_CHECK(
      options.batch >= 1 && options.length >= 0 && options.length <= config.max_position_embeddings,
      "a micro-batch of {} sequences of {} tokens; the model takes up to {}", options.batch,
      options.length, config.max_position_embeddings);
  FSDP_CHECK(options.threads >= 1, "{} threads of a rank", options.threads);
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

namespace {

/// The peaks of all ranks, in one walk. @param steps  0: an evaluation
std::vector<std::int64_t> peaks_by_rank(const nn::TransformerConfig& config,
                                        const MemoryOptions& options, int steps,
                                        MemorySpace space) {
  RankPeaks ranks(options.recipe.ranks);
  Books books(options);
  books.open_bytes(space, &ranks);
  StepWalk walk(config, options, books);
  walk.set_recording(false);
  if (steps == 0) walk.evaluation_peak();
  for (int step = 0; step < std::min(steps, 2); ++step) walk.next_step();  // later ones are alike
  return ranks.peaks();
}

}  // namespace

std::vector<std::int64_t> bound_bytes_by_rank(const nn::TransformerConfig& config,
                                              const MemoryOptions& options, int steps,
                                              MemorySpace space) {
  if (!options.recipe.is_zero()) {
    return std::vector(static_cast<std::size_t>(options.recipe.ranks),
                       MemoryFormula(config, options, space).peak(steps).total());
  }
  FSDP_CHECK(steps >= 1, "the peak of {} steps", steps);
  return peaks_by_rank(config, options, steps, space);
}

std::int64_t bound_bytes(const nn::TransformerConfig& config, const MemoryOptions& options,
                         int steps) {
  return std::ranges::max(bound_bytes_by_rank(config, options, steps));
}

std::vector<std::int64_t> evaluation_bounds_by_rank(const nn::TransformerConfig& config,
                                                    const MemoryOptions& options,
                                                    MemorySpace space) {
  return peaks_by_rank(config, options, 0, space);
}

}  // namespace fsdp::paper
