/// @file
/// @ingroup estimate
/// One training in several engines, and an estimate beside what was measured.
#pragma once

#include "estimate/estimate.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// The highest step of the same training in each engine: by category, then what makes the
/// difference.
/// @param configs alike but for the framework; what is "more" is more than of the first
std::string comparison_text(const std::vector<EstimatorConfig>& configs);

/// How far an estimate is from `measured` bytes, which categories are large enough to hide that,
/// and which other habits or settings would have that many bytes.
std::string measured_text(const Estimate& estimate, std::int64_t measured);

}  // namespace fsdp::estimate
