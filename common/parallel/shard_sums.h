/// @file
/// @ingroup parallel
/// ShardSums: the sum of reduced shards over the micro-steps and, in a mesh, over its replicas.
#pragma once

#include "comm/process_group.h"
#include "tensor/tree_sum.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::parallel {

/// The all-reduces among the replicas of a mesh, of one unit's shards at a time. They go on while
/// the next unit computes:
///
///     unit k+1   … reduce-scatter →→ | all-reduce →→→→→→→→→→ |
///     unit k              compute    | … reduce-scatter →→→→ | all-reduce …
///
class ReplicaReduction {
 public:
  explicit ReplicaReduction(std::shared_ptr<ProcessGroup> replicas);
  /// Starts to sum `shard` over the replicas; the sum becomes the next leaf of `sums`, which must
  /// outlive it. What is under way of another unit is finished first.
  void start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit);
  void finish();  ///< Waits for all that is under way.
  void clear();   ///< The same, and nothing becomes a leaf.

 private:
  struct UnderWay {
    TreeAccumulator* sums;
    Tensor shard;
    Work work;
  };
  std::shared_ptr<ProcessGroup> replicas_;
  std::string unit_;
  std::vector<UnderWay> under_way_;  // all of unit_
};

/// A TreeAccumulator of reduced shards. In a mesh, each shard is summed over the replicas before it
/// becomes a leaf. Replicas are groups of consecutive ranks. So the sum over a replica's ranks,
/// then the replicas, then the micro-steps is the canonical one if a replica has a power of two of
/// ranks.
class ShardSums {
 public:
  /// `across` is null if there is no mesh.
  ShardSums(TreeAccumulator tree, std::string unit, std::shared_ptr<ReplicaReduction> across);
  /// As TreeAccumulator::push(). In a mesh, the shard is taken as it is, and kept until it is
  /// summed.
  void push(const Tensor& shard);
  std::int64_t leaves() const { return tree_.leaves(); }  ///< without those under way
  Tensor fold();                                          ///< of all, also of those under way
  void clear();                                           ///< likewise

 private:
  TreeAccumulator tree_;
  std::string unit_;
  std::shared_ptr<ReplicaReduction> across_;
};

}  // namespace fsdp::parallel
