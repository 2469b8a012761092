/// @file
/// @ingroup optim
/// ShardSums: the sum of reduced gradients over the micro-steps and, in a mesh, over its replicas;
/// on the device or, offloaded, on its host.
#pragma once

#include "comm/replicas.h"
#include "optim/offload.h"
#include "tensor/host_copy.h"
#include "tensor/tree_sum.h"

#include <cstdint>
#include <memory>
#include <string>

namespace fsdp::optim {

/// The copies of gradient shards to the host, of one unit (with ZeRO-2: of one bucket that the rank
/// owns) at a time. They go on while the next unit computes, and a shard's bytes on the device are
/// freed when those of the next unit are copied.
class HostCopies {
 public:
  /// Starts to copy `shard` to the host, where it becomes the next leaf of `sums`, which must
  /// outlive it. What is under way of another unit is finished first.
  void start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit);
  void finish();  ///< Waits for all that is under way.
  void clear();   ///< The same, and nothing becomes a leaf.

 private:
  struct UnderWay {
    TreeAccumulator* sums;
    Tensor shard;
    Tensor leaf;  // on the host
    HostCopy copy;
  };
  std::string unit_;
  std::vector<UnderWay> under_way_;  // all of unit_
};

/// Whether the sums are offloaded, and what copies shards to the host then.
struct SumsOffload {
  Offload offload = {};
  std::shared_ptr<HostCopies> copies = nullptr;
};

/// A TreeAccumulator of reduced shards, or of what a rank of ZeRO-2 owns. In a mesh, each shard is
/// summed over the replicas before it becomes a leaf. Replicas are groups of consecutive ranks. So
/// the sum over a replica's ranks, then the replicas, then the micro-steps is the canonical one if
/// a replica has a power of two of ranks.
///
/// With offload.grads, the shard becomes a leaf on the host, and the sums are made there. With
/// offload.params or offload.optimizer alone they are made on the device. Either way fold() returns
/// them on the host.
class ShardSums {
 public:
  /// `across` is null if there is no mesh.
  ShardSums(TreeAccumulator tree, std::string unit, std::shared_ptr<ReplicaSum> across,
            SumsOffload to_host = {});
  /// As TreeAccumulator::push(). In a mesh, and with offload.grads, the shard is taken as it is,
  /// and kept until it is summed and copied.
  void push(const Tensor& shard);
  std::int64_t leaves() const { return tree_->leaves(); }  ///< without those under way
  /// Of all, also of those under way. What is copied to the host for it counts as the tree's kind.
  Tensor fold();
  void clear();  ///< likewise

 private:
  std::string unit_;
  std::shared_ptr<ReplicaSum> across_;
  SumsOffload to_host_;
  std::unique_ptr<TreeAccumulator> tree_;
};

}  // namespace fsdp::optim
