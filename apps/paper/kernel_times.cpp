#include "paper/kernel_times.h"

#include "paper/segments.h"

namespace fsdp::paper {

namespace {

std::int64_t sum_of(const std::vector<Kernel>& kernels, const CostModel& machine) {
  VirtualClock clock(machine);
  for (const Kernel& each : kernels) clock.compute(each.cost);
  return clock.now();
}

SegmentTimes times_of(const SegmentMemory& segment, const CostModel& machine) {
  const std::vector<Kernel>& backward = segment.kernels.backward;
  SegmentTimes times;
  times.forward = times.again = sum_of(segment.kernels.forward, machine);
  VirtualClock clock(machine);
  for (std::size_t i = 0; i < backward.size(); ++i) {
    clock.compute(backward[i].cost);
    const std::string& operation = backward[i].operation;
    const bool is_last = i + 1 == backward.size() || backward[i + 1].operation != operation;
    if (is_last) times.completions.push_back({operation, clock.now()});
  }
  times.backward = clock.now();
  return times;
}

}  // namespace

KernelTimes kernel_times(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine) {
  nn::TransformerConfig one_block = config;
  one_block.num_hidden_layers = 1;
  MemoryOptions trained;
  trained.batch = options.batch;
  trained.length = options.length;
  trained.recipe.precision = options.recipe.precision;
  const TapedModel model = taped_model(one_block, trained);
  KernelTimes times{.embedding = times_of(*model.segments[0], machine),
                    .block = times_of(*model.segments[1], machine),
                    .head = times_of(*model.segments[2], machine),
                    .loss = times_of(model.loss, machine)};
  if (options.recipe.checkpointing == Checkpointing::operations) {
    trained.recipe.checkpointing = Checkpointing::operations;
    trained.recipe.kept_operations = options.recipe.kept_operations;
    const TapedModel again = taped_model(one_block, trained);
    times.block.again = sum_of(again.segments[1]->kernels.again, machine);
  }
  return times;
}

}  // namespace fsdp::paper
