#include "parallel/shard_sums.h"

#include <utility>

namespace fsdp::parallel {

ShardSums::ShardSums(TreeAccumulator tree, std::string unit, std::shared_ptr<ReplicaSum> across)
    : tree_(std::move(tree)), unit_(std::move(unit)), across_(std::move(across)) {}

void ShardSums::push(const Tensor& shard) {
  if (across_ == nullptr) {
    tree_.push(shard);
  } else {
    across_->start(tree_, shard, unit_);
  }
}

Tensor ShardSums::fold() {
  if (across_ != nullptr) across_->finish();
  return tree_.fold();
}

void ShardSums::clear() {
  if (across_ != nullptr) across_->clear();
  tree_.clear();
}

}  // namespace fsdp::parallel
