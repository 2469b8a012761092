#include "paper/kernel_times.h"

#include "paper/segments.h"

namespace fsdp::paper {

namespace {

/// Picoseconds after none of the kernels, after one, …
std::vector<std::int64_t> ends_of(const std::vector<Kernel>& kernels, const CostModel& machine) {
  VirtualClock clock(machine);
  std::vector<std::int64_t> ends{0};
  for (const Kernel& each : kernels) {
    clock.compute(each.cost);
    ends.push_back(clock.now());
  }
  return ends;
}

SegmentTimes times_of(const SegmentMemory& segment, const CostModel& machine) {
  const std::vector<Kernel>& backward = segment.kernels.backward;
  SegmentTimes times;
  times.forward_at = ends_of(segment.kernels.forward, machine);
  times.backward_at = ends_of(backward, machine);
  times.again_at = times.forward_at;
  times.forward = times.again = times.forward_at.back();
  times.backward = times.backward_at.back();
  for (std::size_t i = 0; i < backward.size(); ++i) {
    const std::string& operation = backward[i].operation;
    const bool is_last = i + 1 == backward.size() || backward[i + 1].operation != operation;
    if (is_last) times.completions.push_back({operation, times.backward_at[i + 1]});
  }
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
    times.block.again_at = ends_of(again.segments[1]->kernels.again, machine);
    times.block.again = times.block.again_at.back();
  }
  return times;
}

}  // namespace fsdp::paper
