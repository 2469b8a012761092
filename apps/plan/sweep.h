/// @file
/// @ingroup plan
/// A sweep: memory and time of a step while one or two choices change.
#pragma once

#include "plan/evaluator.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::plan {

/// What changes:
///
///     world       W; the replicas stay, so the shards change
///     replicas    R, each with as many shards as now, so W = R·S grows; beside `world` W stays
///     mesh        R, of the same ranks: W stays, and S = W / R changes
///     batch       B, sequences of a micro-batch
///     seq_len     T
///     prefetch    units gathered ahead
///     reshard     after forward: always, then never (no range is given)
struct SweepAxis {
  std::string key;
  std::vector<std::int64_t> values;
  std::string label(std::int64_t value) const;  ///< as it is shown: "8", "always"
};

/// "world=8..1024" or "world=8..64,batch=1..8": doubled from the first to the last; one or two
/// axes. @throws InputError
std::vector<SweepAxis> parse_sweep(const std::string& text);

struct SweepPoint {
  std::vector<std::int64_t> values;  ///< of the axes
  Outcome outcome;
};

struct Sweep {
  std::string model_name;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;           ///< the last axis changes fastest
  std::optional<std::int64_t> memory = {};  ///< bytes of a device, which some may exceed
};

/// @throws InputError if a value does not fit the training.
Sweep make_sweep(Evaluator& evaluator, const std::string& model_name,
                 const paper::MemoryOptions& base, const std::vector<SweepAxis>& axes);

/// One row per point: step time, peak, and the peak by category.
std::string sweep_text(const Sweep& sweep);
std::string sweep_json(const Sweep& sweep);
/// The peak by category as stacked bars, and the step time below them.
std::string sweep_svg(const Sweep& sweep);

}  // namespace fsdp::plan
