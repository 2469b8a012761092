/// @file
/// @ingroup task8
/// Task 8, optional: a mesh of replicas (hybrid sharding), and the sum over them.
#pragma once

#include "comm/process_group.h"
#include "comm/replicas.h"
#include "tensor/tree_sum.h"

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

/// 8.1  Divides the W ranks of `world` into R replicas of S = W / R shards:
///
///     W = 6, R = 2       shard 0   shard 1   shard 2
///     replica 0             0         1         2       its group: consecutive ranks
///     replica 1             3         4         5
///                           `----- replicas(): the ranks in a column hold the same
///
/// @return the group of this rank's replica. Its replicas() are the ranks of this rank's column,
/// also if R is 1. Each model that is sharded over this group gets a ReplicaReduction from it.
/// Collective, blocks; works on the fake group too.
/// @throws Error unless R divides W.
std::shared_ptr<ProcessGroup> make_mesh(ProcessGroup& world, int replicas);

/// The all-reduces among the replicas of a mesh, for the shards of one unit at a time. They run
/// while the next unit computes:
///
///     unit k+1   … reduce-scatter →→ | all-reduce →→→→→→→→→→ |
///     unit k              compute    | … reduce-scatter →→→→ | all-reduce …
///
/// So the shards of at most one unit are being all-reduced, and one other unit is being
/// reduce-scattered.
class ReplicaReduction : public ReplicaSum {
 public:
  /// `replicas`: the ranks that hold the same as this one, one in each replica.
  explicit ReplicaReduction(std::shared_ptr<ProcessGroup> replicas);

  /// 8.2  Starts to sum `shard` over the replicas, in place, and does not wait. What is under way
  /// of another unit is finished first, and so is an earlier shard of the same `sums`. Afterwards
  /// the last of under_way_ is this shard, and unit_ is `unit`.
  void start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit) override;

  /// 8.3  Waits for all that is under way. Each shard, now a sum over R replicas, becomes the next
  /// leaf of its `sums`. Afterwards nothing is under way.
  void finish() override;
  /// 8.3  Waits for all that is under way, and nothing becomes a leaf: the step was abandoned.
  void clear() override;

 private:
  friend struct StepProbe;  // looks at what is under way (tests)
  struct UnderWay {
    TreeAccumulator* sums;  // where the sum becomes a leaf
    Tensor shard;
    Work work;
  };
  std::shared_ptr<ProcessGroup> replicas_;
  std::string unit_;  // whose shards are under way, if any are
  std::vector<UnderWay> under_way_;
  std::shared_ptr<void> extra;  // spare, for the student
};

}  // namespace fsdp
