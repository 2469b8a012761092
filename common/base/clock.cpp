#include "base/clock.h"

#include <algorithm>
#include <cmath>

namespace fsdp {

void VirtualClock::compute(Cost cost) {
  const bool is_half = cost.is_half && model_.ps_per_flop_16 > 0;
  const double ps_per_flop = is_half ? model_.ps_per_flop_16 : model_.ps_per_flop;
  compute_ += std::llround(std::max(cost.flops * ps_per_flop, cost.nbytes * model_.ps_per_byte));
}

void VirtualClock::compute_on_host(double nbytes) {
  compute_ += std::llround(nbytes * model_.host_ps_per_byte);
}

std::int64_t VirtualClock::start_collective(int world_size, std::int64_t nbytes, bool is_far,
                                            std::int64_t ready) {
  std::int64_t& channel = is_far ? far_ : channel_;
  const std::int64_t alpha = is_far ? model_.far_alpha_ps : model_.alpha_ps;
  const double per_byte = is_far ? model_.far_link_ps_per_byte : model_.link_ps_per_byte;
  channel = std::max({compute_, channel, ready}) + (world_size - 1) * alpha +
            std::llround(static_cast<double>(nbytes) * per_byte);
  return channel;
}

std::int64_t VirtualClock::start_copy(std::int64_t nbytes) {
  bus_ =
      std::max(compute_, bus_) + std::llround(static_cast<double>(nbytes) * model_.bus_ps_per_byte);
  return bus_;
}

void VirtualClock::wait_until(std::int64_t time) { compute_ = std::max(compute_, time); }

}  // namespace fsdp
