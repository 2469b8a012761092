/// @file
/// The time of a step by formula beside that of the real engine on the virtual clock.
#pragma once

#include "base/clock.h"
#include "memory/real_training.h"

#include <string>

namespace fsdp::testing {

/// No number divides another, so no two terms hide each other.
inline constexpr CostModel kOddMachine{.ps_per_flop = 0.7,
                                       .ps_per_flop_16 = 0.3,
                                       .ps_per_byte = 1.3,
                                       .alpha_ps = 1777,
                                       .link_ps_per_byte = 2.9,
                                       .bus_ps_per_byte = 3.7,
                                       .host_ps_per_byte = 2.1,
                                       .ranks_per_box = 2,
                                       .far_alpha_ps = 4111,
                                       .far_link_ps_per_byte = 17.3};
/// Computation hides what it can.
inline constexpr CostModel kSlowKernels{.ps_per_flop = 31,
                                        .ps_per_flop_16 = 17,
                                        .ps_per_byte = 1.3,
                                        .alpha_ps = 1777,
                                        .link_ps_per_byte = 2.9,
                                        .bus_ps_per_byte = 3.7,
                                        .host_ps_per_byte = 2.1};

/// The odd model on W ranks, with a clip.
MemoryCase timed_case(int world_size);

/// The first step that takes another time than the formula says, as a sentence; "" if none.
std::string difference_in_time(MemoryCase test_case, const CostModel& machine);

/// Checks that there is none, on both machines.
void check_times(const MemoryCase& test_case);

}  // namespace fsdp::testing
