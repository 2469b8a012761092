#include "optim/shard_sums.h"

#include <algorithm>
#include <utility>

namespace fsdp::optim {

void HostCopies::start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit) {
  const auto is_under_way = [&](const UnderWay& each) { return each.sums == &sums; };
  if (unit != unit_ || std::ranges::any_of(under_way_, is_under_way)) finish();
  unit_ = unit;
  const AllocationScope as_leaf(sums.kind(), sums.owner());
  Tensor leaf = Tensor::empty(shard.shape(), shard.dtype(), Context::current().host());
  HostCopy copy = start_host_copy(leaf, shard, {unit, Phase::gradient});
  under_way_.push_back({&sums, shard, std::move(leaf), std::move(copy)});
}

void HostCopies::finish() {
  for (UnderWay& each : under_way_) {
    each.copy.wait();
    each.shard.storage()->free();
    each.sums->TreeAccumulator::push(each.leaf);  // not to be copied again
  }
  under_way_.clear();
  unit_.clear();
}

void HostCopies::clear() {
  for (UnderWay& each : under_way_) each.copy.wait();
  under_way_.clear();
  unit_.clear();
}

namespace {

/// Sums on the host, of leaves that are pushed on the device.
class HostTree : public TreeAccumulator {
 public:
  HostTree(TreeAccumulator tree, std::string unit, std::shared_ptr<HostCopies> copies)
      : TreeAccumulator(std::move(tree)), unit_(std::move(unit)), copies_(std::move(copies)) {}
  void push(const Tensor& leaf) override { copies_->start(*this, leaf, unit_); }

 private:
  std::string unit_;
  std::shared_ptr<HostCopies> copies_;
};

}  // namespace

ShardSums::ShardSums(TreeAccumulator tree, std::string unit, std::shared_ptr<ReplicaSum> across,
                     SumsOffload to_host)
    : unit_(std::move(unit)), across_(std::move(across)), to_host_(std::move(to_host)) {
  if (to_host_.offload.grads) {
    tree_ = std::make_unique<HostTree>(std::move(tree), unit_, to_host_.copies);
  } else {
    tree_ = std::make_unique<TreeAccumulator>(std::move(tree));
  }
}

void ShardSums::push(const Tensor& shard) {
  if (across_ == nullptr) {
    tree_->push(shard);
  } else {
    across_->start(*tree_, shard, unit_);
  }
}

Tensor ShardSums::fold() {
  if (across_ != nullptr) across_->finish();
  if (to_host_.copies != nullptr) to_host_.copies->finish();
  Tensor sum = tree_->fold();
  if (!to_host_.offload.is_on() || to_host_.offload.grads) return sum;
  const AllocationScope as_sum(tree_->kind(), tree_->owner());
  Tensor copy = Tensor::empty(sum.shape(), sum.dtype(), Context::current().host());
  start_host_copy(copy, sum, {unit_, Phase::gradient}).wait();
  return copy;
}

void ShardSums::clear() {
  if (across_ != nullptr) across_->clear();
  if (to_host_.copies != nullptr) to_host_.copies->clear();
  tree_->clear();
}

}  // namespace fsdp::optim
