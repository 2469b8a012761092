/// @file
/// @ingroup report
/// Memory over time, from the log of a rank.
#pragma once

#include "report/run_record.h"

#include <cstdint>
#include <vector>

namespace fsdp::report {

/// What a rank held from `time` on.
struct MemoryPoint {
  std::int64_t time = 0;  ///< picoseconds
  Breakdown bytes;
};

/// One point for what was there at the beginning, then one a log entry: several may share a time,
/// and none of them is left out, so the highest is the tracker's peak.
std::vector<MemoryPoint> memory_curve(const RankRecord& rank);

/// The same with at most three points a moment (the first, the highest, the last): enough to draw.
std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& curve);

/// The highest point, the first if there are several. @throws Error if the curve is empty.
const MemoryPoint& peak_of(const std::vector<MemoryPoint>& curve);

/// A change of what is held, as a log entry says it; changing hands is two of them.
struct MemoryChange {
  std::int64_t time = 0;
  MemoryKind kind{};
  std::int64_t delta = 0;
  const Owner* owner = nullptr;  ///< may be null; lives as long as the record
  /// The bytes only change hands: the next change has them again, as another kind.
  bool hands_over = false;
};
/// Replays a log. Bytes that change hands are taken away before they are added again, so that no
/// sum is ever higher than what was held.
std::vector<MemoryChange> memory_changes(const RankRecord& rank);

}  // namespace fsdp::report
