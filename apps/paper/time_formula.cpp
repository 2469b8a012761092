#include "paper/time_formula.h"

#include "base/check.h"
#include "paper/books.h"
#include "paper/step_walk.h"

namespace fsdp::paper {

TimeFormula::TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine)
    : TimeFormula(config, options, machine, kernel_times(config, options, machine)) {}

TimeFormula::TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine, const KernelTimes& kernels) {
  check_options(config, options);
  FSDP_CHECK(options.recipe.trains_all() && options.recipe.sharding.ignored.empty(),
             "the time of a step is only known for models that are trained and sharded as a whole: "
             "leave lora, frozen and ignored empty");
  const optim::ZeroOptions& zero = options.recipe.zero;
  FSDP_CHECK(zero.reductions.overlap && !zero.reductions.compression && zero.reduce_scatter &&
                 zero.contiguous_gradients,
             "the time of a step is only known for gradients that are reduced as they are, while "
             "backward goes on: leave overlap, compression, reduce_scatter and "
             "contiguous_gradients as they are by default");
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
