/// @file
/// A model whose virtual time can be written down: K equal products, and nothing else that costs.
#pragma once

#include "support/schedule.h"
#include "task7_integration/integration.h"

#include <cstdint>

namespace fsdp::testing {

/// What an iteration is timed on.
struct TimedCase {
  int units = 4;
  int world_size = 2;
  /// Of the machine: picoseconds of a floating-point operation, of a hop, of a byte received.
  double ps_per_flop = 1;
  std::int64_t alpha_ps = 0;
  double link_ps_per_byte = 0;
  /// A reduction carries this many times the bytes of a gather, so that ρ may differ from g.
  int reduce_factor = 1;
  int depth = 1;
  int limit = 0;
  ReshardAfterForward reshard = ReshardAfterForward::always();
  /// Units are checkpointed, inside or from around.
  bool checkpoints_inside = false;
  bool checkpoints_around = false;
  optim::Offload offload;
  double bus_ps_per_byte = 0;
};

/// What the units of that case cost: f = 2·R·d², b = 2f (two products), g = ρ = (W-1)·(α +
/// 4·n·link), and with offload h = 4·n·bus; h_g = h if gradients are offloaded too.
ScheduleCase costs_of(const TimedCase& timed);

/// The virtual time of iteration number `iteration` (0 = the first, which knows no order yet), of
/// one rank on the fake device. With offload, backward ends with finish_gradients(),
/// which waits for the last copies.
ScheduleTimes time_iteration(const TimedCase& timed, int iteration = 1);

}  // namespace fsdp::testing
