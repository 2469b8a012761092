#include "optim/step_plan.h"

#include "base/check.h"

#include <bit>

namespace fsdp::optim {

void StepPlan::validate() const {
  FSDP_CHECK(micro_steps > 0 && micro_steps_per_reduction > 0,
             "a step and a reduction each need at least one micro-batch: got {} and {}",
             micro_steps, micro_steps_per_reduction);
  FSDP_CHECK(is_valid(), "{} micro-steps per reduction must divide the {} micro-steps of a step",
             micro_steps_per_reduction, micro_steps);
}

std::int64_t StepPlan::micro_batch(int m, int rank, int world_size) const {
  const std::int64_t per_reduction = micro_steps_per_reduction;
  const std::int64_t reduction = m / per_reduction;
  return reduction * world_size * per_reduction + rank * per_reduction + m % per_reduction;
}

double prescale_of(std::int64_t micro_batches) {
  FSDP_CHECK(micro_batches > 0, "a step needs at least one micro-batch; got {}", micro_batches);
  return 1 / static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(micro_batches)));
}

}  // namespace fsdp::optim
