/// @file
/// @ingroup race
/// What judge and policy say of a plan, as one line of JSON for apps/course/race.py.
#pragma once

#include "race/bound.h"
#include "race/policy.h"
#include "race/track.h"

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp::race {

/// The fastest configuration of unshard-plan that fits, of those that differ only in what a plan
/// decides.
struct Planned {
  std::int64_t step_ps = 0;
  std::string what;  ///< "reshard always, prefetch 1, checkpoints"
};

/// @param plan     peak_bytes 0: it was not run
/// @param fsdp     plain FSDP
/// @param refused  why the plan has no time; "" if it has one
/// @param planner  unknown to who has not asked
std::string verdict_to_json(const Track& track, const Estimate& plan, const Estimate& fsdp,
                            const Bound& bound, const std::string& refused,
                            const std::optional<Planned>& planner = {});

/// Why a plan of this peak has no time; "" if a rank of `track` has the memory.
std::string refused_for_memory(std::int64_t peak_bytes, const Track& track);

/// The numbers of all tracks, their names, and what is hard about each.
std::string tracks_to_json();

}  // namespace fsdp::race
