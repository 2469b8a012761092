/// @file
/// @ingroup comm
/// Finds out that ranks of the thread backend can never go on, and says why.
#pragma once

#include "comm/thread_group.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::threads {

/// Why a rank that waits will wait for ever: it waits for a collective that the next rank in the
/// chain has not called, which waits for one that the next has not called, and so on to a rank that
/// has ended, or back to the first.
///
/// A collective needs *every* member, so one such chain is enough; and since ranks are looked at
/// whenever one begins to wait or ends, a cycle is found by the rank that closes it. A rank whose
/// activity is `polls` waits.
std::optional<std::vector<int>> find_dead_end(const std::vector<RankState>& ranks, int from);

/// How messages name what `rank` called: "all_reduce of a/forward (collective 3 of ranks 0, 1)".
std::string describe(const Operation& operation, int rank);

/// The chain as a sentence.
std::string explain(const std::vector<RankState>& ranks, const std::vector<int>& chain);

/// True when a rank that `operation` needs, and that has not called it, has ended.
bool can_never_finish(const std::vector<RankState>& ranks, const Operation& operation);

/// The table of hang_report.h for every group with a collective that is not done (for the first
/// group if there is none).
std::string tables(const std::vector<RankState>& ranks,
                   const std::vector<std::shared_ptr<Group>>& groups);

/// The same for one collective that all ranks have called: what each of them called it with.
std::string table_of(const std::vector<RankState>& ranks, const Operation& operation);

}  // namespace fsdp::threads
