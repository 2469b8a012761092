#include "estimate/time_formula.h"

#include "base/check.h"
#include "estimate/model_shape.h"
#include "estimate/sharded_timing.h"
#include "estimate/whole_timing.h"

#include <memory>

namespace fsdp::estimate {

namespace {

std::int64_t length_of(const nn::TransformerConfig& config, const MemoryOptions& options) {
  return options.length == 0 ? config.max_position_embeddings : options.length;
}

std::unique_ptr<StepTiming> timing_of(const ModelShape& shape, const MemoryOptions& options,
                                      const CostModel& machine, const KernelTimes& kernels) {
  if (options.placement == Placement::sharded) {
    return std::make_unique<ShardedTiming>(shape, options, machine, kernels);
  }
  return std::make_unique<WholeTiming>(shape, options, machine, kernels);
}

}  // namespace

TimeFormula::TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine)
    : TimeFormula(config, options, machine,
                  kernel_times(config, options.batch, length_of(config, options),
                               options.mixed_precision.param_dtype_for(DType::float32), machine)) {}

TimeFormula::TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine, const KernelTimes& kernels) {
  check_options(config, options);
  FSDP_CHECK(!options.trains && options.lora_rank == 0 && options.ignored.empty(),
             "the time of a step is only known for models that are trained and sharded as a whole: "
             "leave trains, lora_rank and ignored empty");
  const parallel::ZeroOptions& zero = options.zero;
  FSDP_CHECK(zero.reductions.overlap && !zero.reductions.compression && zero.reduce_scatter &&
                 zero.contiguous_gradients,
             "the time of a step is only known for gradients that are reduced as they are, while "
             "backward goes on: leave overlap, compression, reduce_scatter and "
             "contiguous_gradients as they are by default");
  const ModelShape shape = model_shape(config, options);
  const auto timing = timing_of(shape, options, machine, kernels);
  first_ = timing->next_step();
  later_ = timing->next_step();
}

}  // namespace fsdp::estimate
