#include "base/clock.h"

#include <algorithm>
#include <cmath>

namespace fsdp {

void VirtualClock::compute(Cost cost) {
  compute_ +=
      std::llround(std::max(cost.flops * model_.ps_per_flop, cost.nbytes * model_.ps_per_byte));
}

std::int64_t VirtualClock::start_collective(int world_size, std::int64_t nbytes) {
  const std::int64_t begin = std::max(compute_, channel_);
  channel_ = begin + (world_size - 1) * model_.alpha_ps +
             std::llround(static_cast<double>(nbytes) * model_.link_ps_per_byte);
  return channel_;
}

void VirtualClock::wait_until(std::int64_t time) { compute_ = std::max(compute_, time); }

}  // namespace fsdp
