/// @file
/// @ingroup comm
/// The table of where each rank waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

/// The last known activity of one rank in one group.
struct RankStatus {
  int rank = 0;  ///< in the world
  /// Number of the collective it waits for in that group, or of the last it called; -1 = none yet.
  std::int64_t sequence = -1;
  std::string operation{};  ///< "all_gather"; "-" before the first
  std::string unit{};       ///< label: "blocks.0/forward"; "-" without one
  std::int64_t elements = 0;
  std::string state{};  ///< "waits", "polls" (also: "… elsewhere"), "computes", "threw", "returned"
};

/// One line per rank, under a header:
///
///     rank  seq  operation       unit               elements  state
///        0    4  all_gather      blocks.1/forward       1024  waits
///        1    3  reduce_scatter  blocks.0/gradient       512  returned
std::string hang_table(const std::vector<RankStatus>& ranks);

}  // namespace fsdp
