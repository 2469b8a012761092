/// @file
/// @ingroup parallel
/// ShardSums: the sum of reduced shards over the micro-steps and, in a mesh, over its replicas.
#pragma once

#include "comm/replicas.h"
#include "tensor/tree_sum.h"

#include <cstdint>
#include <memory>
#include <string>

namespace fsdp::parallel {

/// A TreeAccumulator of reduced shards. In a mesh, each shard is summed over the replicas before it
/// becomes a leaf. Replicas are groups of consecutive ranks. So the sum over a replica's ranks,
/// then the replicas, then the micro-steps is the canonical one if a replica has a power of two of
/// ranks.
class ShardSums {
 public:
  /// `across` is null if there is no mesh.
  ShardSums(TreeAccumulator tree, std::string unit, std::shared_ptr<ReplicaSum> across);
  /// As TreeAccumulator::push(). In a mesh, the shard is taken as it is, and kept until it is
  /// summed.
  void push(const Tensor& shard);
  std::int64_t leaves() const { return tree_.leaves(); }  ///< without those under way
  Tensor fold();                                          ///< of all, also of those under way
  void clear();                                           ///< likewise

 private:
  TreeAccumulator tree_;
  std::string unit_;
  std::shared_ptr<ReplicaSum> across_;
};

}  // namespace fsdp::parallel
