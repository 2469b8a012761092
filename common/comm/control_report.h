/// @file
/// @ingroup comm
/// Detects that ranks are deadlocked, and explains why.
#pragma once

#include "comm/control_state.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::control {

/// Why a waiting rank is deadlocked. It waits for a collective that the next rank in the chain has
/// not called. That rank waits for one that the next has not called, and so on, to a rank that has
/// ended, or back to the first.
///
/// A collective needs *every* member, so one such chain is enough. Ranks are checked whenever one
/// begins to wait or ends, so the rank that closes a cycle finds it. A rank whose activity is
/// `polls` waits.
std::optional<std::vector<int>> find_dead_end(const std::vector<RankState>& ranks, int from);

/// The name of `rank`'s call in messages: "all_reduce of a/forward (collective 3 of ranks 0, 1)".
std::string describe(const Operation& operation, int rank);
std::string describe(const Collective& call, const std::vector<int>& members);

/// The chain as a sentence.
std::string explain(const std::vector<RankState>& ranks, const std::vector<int>& chain);

/// True if a rank has ended without calling `operation`, which needs it.
bool can_never_finish(const std::vector<RankState>& ranks, const Operation& operation);

/// A table of where each rank is, for every group with an unfinished collective (or for the first
/// group, if there is none). The number is that of the collective it waits for, or called last:
///
///     rank  seq  operation       unit               elements  state
///        0    4  all_gather      blocks.1/forward       1024  waits
///        1    3  reduce_scatter  blocks.0/gradient       512  returned
std::string tables(const std::vector<RankState>& ranks,
                   const std::vector<std::shared_ptr<Group>>& groups);

/// The same for one collective that all ranks have called, with each rank's arguments.
std::string table_of(const std::vector<RankState>& ranks, const Operation& operation);

}  // namespace fsdp::control
