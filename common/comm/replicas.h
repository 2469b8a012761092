/// @file
/// @ingroup comm
/// Replicas: groups of ranks that each hold everything once, in shards, and what a group of a mesh
/// of them provides. Task 8 makes such a mesh.
#pragma once

#include "comm/process_group.h"
#include "tensor/tree_sum.h"

#include <string>

namespace fsdp {

/// The sum of reduced shards over the replicas of a mesh, overlapped with what is computed
/// meanwhile. One model has one. Task 8 implements it; task 4 calls it, through
/// optim::ShardSums.
class ReplicaSum {
 public:
  virtual ~ReplicaSum() = default;
  /// Starts to sum `shard`, of `unit`, over the replicas. The sum becomes the next leaf of `sums`
  /// when it is finished; `sums` must live until then.
  virtual void start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit) = 0;
  /// Waits for all that is under way, which becomes leaves.
  virtual void finish() = 0;
  /// Waits for all that is under way, and drops it.
  virtual void clear() = 0;
};

/// R of a mesh's group, 1 for any other.
int replica_count(const ProcessGroup& group);
/// Which replica this rank belongs to, in [0, R).
int replica_of(const ProcessGroup& group);

}  // namespace fsdp
