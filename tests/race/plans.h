/// @file
/// Small tracks, and plans for them.
#pragma once

#include "race/plan_walk.h"

#include <cstdint>
#include <vector>

namespace fsdp::testing {

/// Three blocks; no number divides another, so no two terms hide each other.
race::Track odd_track(int ranks, bool is_tied = false);

/// Any plan: some modules are units, and each unit gathers what it likes.
race::Plan random_plan(const race::PaperTrack& paper, std::uint64_t seed);

/// What tasks/race/policy.cpp hands out.
race::Plan plain_plan(const std::vector<race::Module>& modules);

}  // namespace fsdp::testing
