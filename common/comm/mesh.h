/// @file
/// @ingroup comm
/// A mesh of ranks: replicas that each hold everything once, in shards.
#pragma once

#include "comm/process_group.h"

#include <memory>

namespace fsdp {

/// Divides the W ranks of `world` into R replicas of S = W / R shards:
///
///     W = 6, R = 2       shard 0   shard 1   shard 2
///     replica 0             0         1         2       its group: consecutive ranks
///     replica 1             3         4         5
///                           `----- replicas(): the ranks in a column hold the same
///
/// @return the group of this rank's replica, whose replicas() are the ranks of its column.
/// Collective, blocks; works on the fake group too.
/// @throws Error unless R divides W.
std::shared_ptr<ProcessGroup> make_mesh(ProcessGroup& world, int replicas);

/// R of a group that make_mesh() made, 1 for any other.
int replica_count(const ProcessGroup& group);
/// Which replica this rank belongs to, in [0, R).
int replica_of(const ProcessGroup& group);

}  // namespace fsdp
