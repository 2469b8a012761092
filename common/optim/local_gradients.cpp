#include "optim/local_gradients.h"

#include "base/check.h"
#include "device/memory_tracker.h"
#include "tensor/cast.h"

#include <utility>

namespace fsdp::optim {

namespace {

/// The leaf of a parameter that took no part in a micro-batch: +0, like any other gradient.
Tensor zero_leaf(const Tensor& like, DType dtype) {
  Tensor zero = Tensor::empty(like.shape(), dtype, like.device());
  ops::fill(zero, 0);
  return zero;
}

}  // namespace

LocalGradients::LocalGradients(std::vector<std::pair<std::string, Variable>> parameters,
                               const MasterWeights& masters, std::optional<DType> compression)
    : compression_(compression) {
  for (auto& [path, variable] : parameters) {
    if (!variable.requires_grad()) continue;
    auto owner = std::make_shared<const Owner>(Owner{"", path});
    const Tensor& master = masters.of(variable);
    pieces_.push_back(
        {.key = path, .param = master.view({master.numel()}), .grad = {}, .unit = {}});
    const auto sums = [&] { return TreeAccumulator(MemoryKind::unsharded_grad, owner); };
    entries_.push_back({path, variable, sums(), sums(), owner, masters.reduce_dtype_of(variable)});
  }
}

void LocalGradients::begin_step(const StepPlan& plan) {
  plan.validate();
  zero_grad();
  for (Entry& entry : entries_) {
    entry.micro_batches.clear();
    entry.accumulator.clear();
  }
  plan_ = plan;
  micro_step_ = 0;
}

void LocalGradients::end_micro_step() {
  FSDP_CHECK(micro_step_ < plan_.micro_steps,
             "this step was planned with {} micro-steps, which have all ended", plan_.micro_steps);
  ++micro_step_;
  for (Entry& entry : entries_) {
    const AllocationScope scope(MemoryKind::unsharded_grad, entry.owner);
    const Tensor& grad = entry.variable.grad();
    const Tensor leaf = grad.is_defined() ? cast(grad, entry.reduce_dtype)
                                          : zero_leaf(entry.variable.data(), entry.reduce_dtype);
    entry.variable.set_grad({});
    if (compression_) {
      compress_and_push(entry, leaf);
    } else {
      entry.accumulator.push(leaf);
    }
  }
}

// What a rank would send, rounded: a gradient, or the sum of those that share a reduction.
void LocalGradients::compress_and_push(Entry& entry, const Tensor& leaf) const {
  Tensor sent = leaf;
  if (plan_.micro_steps_per_reduction > 1) {
    entry.micro_batches.push(leaf);
    if (!plan_.ends_reduction(micro_step_ - 1)) return;
    sent = entry.micro_batches.fold();
  }
  entry.accumulator.push(recast(recast(sent, *compression_), entry.reduce_dtype));
}

void LocalGradients::finish_gradients() {
  FSDP_CHECK(micro_step_ == plan_.micro_steps && micro_step_ > 0,
             "finish_gradients() was called after {} of {} micro-steps", micro_step_,
             plan_.micro_steps);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const AllocationScope scope(MemoryKind::unsharded_grad, entry.owner);
    const Tensor mean = cast(entry.accumulator.fold(), pieces_[i].param.dtype());
    ops::scale(mean, plan_.mean_factor(1));
    entry.variable.set_grad(mean);
    pieces_[i].grad = mean.view({mean.numel()});
  }
}

void LocalGradients::add_squares(ExactSquareSum& sum) {
  for (const Piece& piece : pieces_) sum.add(piece.grad);
}

void LocalGradients::zero_grad() {
  for (Piece& piece : pieces_) piece.grad = {};
  for (Entry& entry : entries_) entry.variable.set_grad({});
}

}  // namespace fsdp::optim
