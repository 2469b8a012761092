#include "paper/time_formula.h"

#include "paper/books.h"
#include "paper/step_walk.h"

#include <fmt/format.h>

namespace fsdp::paper {

void check_timed(const MemoryOptions& options) {
  const optim::Recipe& recipe = options.recipe;
  const optim::ZeroOptions& zero = recipe.zero;
  const auto refuse = [](bool is_refused, const char* key, const char* what) {
    if (!is_refused) return;
    throw optim::RecipeError(key, fmt::format("the time of a step is only known for {}", what));
  };
  refuse(recipe.has_lora(), "lora.rank",
         "models that are trained as a whole; set it to 0, or ask for --largest batch");
  refuse(!recipe.frozen.empty(), "frozen", "models that are trained as a whole; leave it empty");
  refuse(!recipe.sharding.ignored.empty(), "ignored",
         "models that are sharded as a whole; leave it empty");
  refuse(!zero.reductions.overlap, "parallel.overlap_comm",
         "gradients that are reduced during backward; set it to true");
  refuse(zero.reductions.compression.has_value(), "parallel.communication_data_type",
         "gradients that travel uncompressed; leave it out");
  refuse(!zero.reduce_scatter, "parallel.reduce_scatter",
         "gradients that are reduced to their owners; set it to true");
  refuse(!zero.contiguous_gradients, "parallel.contiguous_gradients",
         "gradients that are copied into buckets; set it to true");
}

TimeFormula::TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine)
    : TimeFormula(config, options, machine, kernel_times(config, options, machine)) {}

TimeFormula::TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine, const KernelTimes& kernels) {
  check_options(config, options);
  check_timed(options);
  Books books(options);
  books.open_clock(machine, kernels);
  StepWalk walk(config, options, books);
  walk.set_recording(false);
  walk.next_step();
  first_ = books.take_time();
  walk.next_step();
  later_ = books.take_time();
}

}  // namespace fsdp::paper
