#include "parallel/shard_sums.h"

#include <algorithm>
#include <utility>

namespace fsdp::parallel {

ReplicaReduction::ReplicaReduction(std::shared_ptr<ProcessGroup> replicas)
    : replicas_(std::move(replicas)) {}

void ReplicaReduction::start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit) {
  const auto is_under_way = [&](const UnderWay& each) { return each.sums == &sums; };
  if (unit != unit_ || std::ranges::any_of(under_way_, is_under_way)) finish();
  unit_ = unit;
  under_way_.push_back(
      {&sums, shard, replicas_->all_reduce(shard, ReduceOp::sum, {unit, Phase::gradient})});
}

void ReplicaReduction::finish() {
  for (UnderWay& each : under_way_) {
    each.work.wait();
    each.sums->push(each.shard);
  }
  clear();
}

void ReplicaReduction::clear() {
  under_way_.clear();
  unit_.clear();
}

ShardSums::ShardSums(TreeAccumulator tree, std::string unit,
                     std::shared_ptr<ReplicaReduction> across)
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
