/// @file
/// How long an iteration ought to take: a scheduler of twenty lines that knows nothing of the
/// library.
#pragma once

#include <cstdint>

namespace fsdp::testing {

/// K equal units on one computation and one communication channel. Times in picoseconds.
struct ScheduleCase {
  int units = 1;              ///< K
  std::int64_t forward = 0;   ///< f: computation of a unit
  std::int64_t backward = 0;  ///< b
  std::int64_t gather = 0;    ///< g: all-gather of a unit
  std::int64_t reduce = 0;    ///< ρ: reduce-scatter of a unit
  int depth = 1;              ///< units gathered ahead
  int limit = 0;              ///< gathers started and not waited for; 0 = depth
  std::int64_t copy_in = 0;   ///< h: copy of a unit's shard to the device, before its gather
  std::int64_t copy_out = 0;  ///< h_g: copy of its gradient shard to the host; 0 = none
};

struct ScheduleTimes {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t total() const { return forward + backward; }
  friend bool operator==(const ScheduleTimes&, const ScheduleTimes&) = default;
};

/// Plays the schedule: parameters are resharded after forward, but for the last unit's; a unit's
/// reduction is waited for before the next one is issued, and before the end. So is the copy of its
/// gradient shard, one unit later. Copies of both directions are made one after the other.
ScheduleTimes play(const ScheduleCase& times);

/// The closed form for depth 1 and K >= 2 (DESIGN §10):
///   forward   g + (K-1)·max(f, g) + f
///   backward  max(b, g) + (K-2)·max(b, g + ρ) + max(b, ρ) + ρ
ScheduleTimes formula(const ScheduleCase& times);

}  // namespace fsdp::testing
