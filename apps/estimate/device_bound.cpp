#include "estimate/device_bound.h"

#include "device/context.h"
#include "device/cuda/rank_device.h"
#include "estimate/estimate_run.h"
#include "estimate/estimator_config.h"
#include "tensor/device_kernels.h"

#include <algorithm>

namespace fsdp::estimate {

std::int64_t device_bound_bytes(const config::TrainConfig& config) {
  EstimatorConfig estimated;
  estimated.train = config;
  estimated.granularity = cuda::kGranularity;
  std::int64_t highest = 0;
  // Only ZeRO's ranks differ.
  const std::int64_t ranks = config.recipe.is_zero() ? config.recipe.ranks : 1;
  for (; estimated.rank < ranks; ++estimated.rank) {
    const EstimateRun run = run_estimate(estimated);
    highest = std::max(highest, run.tracker_max() - run.allocator.scratch);
  }
  constexpr auto kUnit = static_cast<std::int64_t>(cuda::kGranularity);
  // RankTrainer keeps them.
  const std::int64_t losses = std::int64_t{4} * config.recipe.plan().micro_steps;
  return highest + device_kernels().scratch_nbytes() + (losses + kUnit - 1) / kUnit * kUnit +
         static_cast<std::int64_t>(Context::Options{}.workspace_nbytes);
}

}  // namespace fsdp::estimate
