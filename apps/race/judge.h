/// @file
/// @ingroup race
/// The judge: runs a plan with the engine.
#pragma once

#include "race/bound.h"
#include "race/policy.h"
#include "race/track.h"
#include "race/verdict_text.h"
#include "report/run_record.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace fsdp::race {

/// One step of the engine on the device fake, after the first one.
struct Measured {
  std::int64_t step_ps = 0;     ///< on the virtual clock
  std::int64_t peak_bytes = 0;  ///< as the tracker counted
  report::RunRecord record;     ///< rank 0
};
/// @param plan null: plain FSDP, prefetch depth 1
Measured measure(const Track& track, const Plan* plan);

/// Trains the track's modules, made narrow, with data: alone, and by the plan over 1, 2 and 4
/// ranks.
/// @return "" if every parameter has the same bits; else a sentence that says where they differ
std::string difference_in_bits(const Track& track, const Plan& plan);

/// None, if no configuration fits.
std::optional<Planned> best_of_planner(const PaperTrack& paper);

/// Why a plan has no time: what `run` returns, or the error that it throws; "" if it has one. A
/// plan may need step 3.4, or steps of task 8, that are not written.
std::string refusal(const std::function<std::string()>& run);

struct Verdict {
  const Track* track = nullptr;
  std::string refused;  ///< why there is no time; "" if there is one
  Measured plan;        ///< nothing, if it was never run
  Measured fsdp;        ///< plain
  std::optional<Planned> planner;
  Bound bound;
};
/// @param text a plan, as the policy handed it over
Verdict judge(const Track& track, const std::string& text);

}  // namespace fsdp::race
