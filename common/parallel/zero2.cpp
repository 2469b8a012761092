#include "device/memory_tracker.h"
#include "parallel/bucket_queue.h"
#include "parallel/zero.h"
#include "tensor/cast.h"
#include "tensor/ops.h"

#include <utility>

namespace fsdp::parallel {

/// A bucket has slices of one owner, which alone keeps its sum.
struct Zero2Gradients::Impl {
  std::shared_ptr<ProcessGroup> group;
  const optim::ZeroOptions& options;
  BucketQueue queue;
  Bucket* in_flight = nullptr;

  static int owner_of(const Bucket& bucket) { return bucket.slots.front().slice.owner; }
  void take(std::size_t parameter);
  void reduce(Bucket& bucket);
  void finish_in_flight();
};

// The gradient moves into its buckets, and is freed unless it travels itself.
void Zero2Gradients::Impl::take(std::size_t parameter) {
  Variable& variable = queue.parameters()[parameter].second;
  const Tensor whole = variable.grad().view({variable.data().numel()});
  for (const auto& [bucket, slot] : queue.places(parameter)) {
    const bool is_alone = bucket->slots.size() == 1 && bucket->numel == whole.numel();
    if (is_alone && whole.dtype() == bucket->dtype) {
      bucket->leaf = whole;
    } else if (!options.contiguous_gradients) {
      slot->whole = whole;
    } else {
      bucket->take(*slot, whole);
    }
  }
  variable.set_grad({});
}

void Zero2Gradients::Impl::reduce(Bucket& bucket) {
  finish_in_flight();
  if (options.reductions.compression) bucket.cast_leaf(*options.reductions.compression);
  const Label label{bucket.name, Phase::gradient};
  if (options.reduce_scatter) {
    const Tensor out = group->rank() == owner_of(bucket) ? bucket.leaf : Tensor();
    bucket.work = group->reduce(out, bucket.leaf, owner_of(bucket), ReduceOp::sum, label);
  } else {
    bucket.work = group->all_reduce(bucket.leaf, ReduceOp::sum, label);
  }
  in_flight = &bucket;
  if (!options.reductions.overlap) finish_in_flight();
}

// The owner has the sum, on its way to the host if gradients are offloaded, and the other ranks
// hold nothing of it any more.
void Zero2Gradients::Impl::finish_in_flight() {
  if (in_flight == nullptr) return;
  in_flight->work.wait();
  if (group->rank() == owner_of(*in_flight)) {
    in_flight->cast_leaf(in_flight->dtype);
    in_flight->reductions.push(in_flight->leaf);
  }
  in_flight->leaf = {};
  in_flight = nullptr;
}

Zero2Gradients::Zero2Gradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                               const std::shared_ptr<ProcessGroup>& group,
                               const optim::ZeroOptions& options,
                               const optim::MasterWeights& masters)
    : ZeroGradients(parameters, group, options, masters),
      impl_(new Impl{.group = group,
                     .options = options_,
                     .queue{parameters, [this](std::size_t parameter) { impl_->take(parameter); },
                            [this](Bucket& bucket) { impl_->reduce(bucket); }}}) {
  const optim::SumsOffload to_host{offload_, std::make_shared<optim::HostCopies>()};
  BucketQueue& queue = impl_->queue;
  for (const std::vector<OwnedSlice>& slices : reduce_groups()) {
    const DType dtype = parameters_[slices.front().parameter].reduce_dtype;
    queue.add(std::make_unique<Bucket>("zero2", queue.buckets().size(), dtype, to_host), slices);
  }
  for (std::size_t piece = 0; piece < owned_.size(); ++piece) {
    for (const auto& [bucket, slot] : queue.places(owned_[piece].parameter)) {
      if (slot->slice == owned_[piece]) slot->piece = piece;
    }
  }
}

Zero2Gradients::~Zero2Gradients() = default;

void Zero2Gradients::begin_step(const optim::StepPlan& plan) {
  plan.validate();
  zero_grad();
  for (Parameter& each : parameters_) each.variable.set_grad({});
  impl_->in_flight = nullptr;
  impl_->queue.begin_step(plan);
}

void Zero2Gradients::end_micro_step() {
  impl_->queue.close_all();
  impl_->finish_in_flight();
  impl_->queue.next_micro_step();
}

void Zero2Gradients::finish_gradients() {
  const double factor = impl_->queue.mean_factor(group_->size());
  for (const auto& bucket : impl_->queue.buckets()) {
    if (Impl::owner_of(*bucket) != group_->rank()) continue;
    const AllocationScope scope(MemoryKind::unsharded_grad, bucket->memory);
    const Tensor sum = bucket->reductions.fold();
    for (const Bucket::Slot& slot : bucket->slots) {
      optim::Piece& piece = pieces_[slot.piece];
      piece.grad = cast(sum.narrow(0, slot.at, slot.slice.numel), piece.param.dtype());
      ops::scale(piece.grad, factor);
    }
  }
}

}  // namespace fsdp::parallel
