// Task 4: the backward pass.     Handout: tasks/task4_backward/README.md
// Edit only this file. Types and data members: backward.h
// Check with:  make test-task4

#include "task4_backward/backward.h"

#include "base/check.h"
#include "base/todo.h"
#include "comm/replicas.h"
#include "tensor/cast.h"
#include "tensor/ops.h"

#include <utility>

namespace fsdp {

GradientReducer::UnitGradients::UnitGradients(GradientReducer& its_reducer, ShardedUnit& its_unit)
    : reducer(&its_reducer), unit(&its_unit) {
  const auto owner = std::make_shared<const Owner>(Owner{unit->name(), "gradient sum"});
  for (const auto& flat : unit->flat_parameters()) {
    if (!flat->requires_grad()) continue;
    flats.push_back(
        {flat.get(),
         TreeAccumulator(MemoryKind::unsharded_grad, owner),
         optim::ShardSums(TreeAccumulator(MemoryKind::sharded_grad, owner), unit->name(),
                          reducer->across_, {flat->offload(), reducer->to_host_}),
         {},
         {}});
  }
}

GradientReducer::GradientReducer(std::vector<ShardedUnit*> units,
                                 std::shared_ptr<ProcessGroup> group)
    : group_(std::move(group)),
      across_(group_->make_replica_sum()),
      to_host_(std::make_shared<optim::HostCopies>()) {
  for (ShardedUnit* unit : units) {
    units_.push_back(std::make_unique<UnitGradients>(*this, *unit));
    unit->backward = units_.back().get();
  }
}

GradientReducer::~GradientReducer() {
  for (const auto& gradients : units_) gradients->unit->backward = nullptr;
}

void GradientReducer::begin_step(const optim::StepPlan& plan) {
  plan.validate();
  plan_ = plan;
  plan_.loss_scale *= replica_count(*group_);  // R replicas sum R times as many micro-batches
  micro_step_ = 0;
  reductions_.clear();
  reducing_ = nullptr;
  for (const auto& gradients : units_) {
    gradients->open_calls = 0;
    gradients->is_prepared = gradients->is_done = false;
    gradients->unit->reshard();
    for (FlatGradient& each : gradients->flats) {
      each.full.clear();
      each.sharded.clear();
      each.input = each.leaf = Tensor();
      each.flat->full_grad().storage()->free();
    }
  }
}

bool GradientReducer::reduces_now() const { return plan_.ends_reduction(micro_step_); }

// ------------------------------------------------------------------- TODO 4.1
// Before the unit's first backward node.
//
// Keep:  everything that backward.h promises for pre_backward, in that order. It may be called
//        again in the same backward (a module that was called twice). Gradients written so far must
//        survive that.
// Hint:  Variable::reset_grad_buffer.
void GradientReducer::pre_backward(UnitGradients& gradients) {
  todo("4.1", gradients);
}

// ------------------------------------------------------------------- TODO 4.2
// Complete the full gradient: +0 where no contribution came, and in the padding.
//
// Hint:  Variable::grad_written, Variable::grad_buffer.
void GradientReducer::complete_gradients(UnitGradients& gradients) {
  todo("4.2", gradients.flats);
}

// ------------------------------------------------------------------- TODO 4.3
// Start the reduction: reduce-scatter (sum) the full gradient into a fresh leaf (n), label {unit,
// gradient}. Read the full gradient through to_reduce_dtype(gradients, *each.flat): in one dtype,
// that is full_grad().
//
// Under no_sync (L > 1), push the full gradient, read like this, to `full` first. Only the last
// micro-step of a group reduces, and it reduces what `full` folds to.
//
// Set:   each.input, each.leaf (REDUCE_SCATTER, dtype of each.input), reductions_, reducing_.
void GradientReducer::start_reduce(UnitGradients& gradients) {
  todo("4.3", gradients, plan_, reductions_, reducing_);
}

// ------------------------------------------------------------------- TODO 4.4
// Finish the reduction in flight, if any. Afterwards nothing is in flight, what was sent is freed,
// and the shard is part of the unit's sum.
//
// Keep:  a running reduction still uses what it sends and what it receives.
// Hint:  a leaf that was pushed to `sharded` counts as SHARDED_GRAD from then on.
void GradientReducer::finish_reduce() {
  todo("4.4", reductions_, reducing_);
}

// ------------------------------------------------------------------- TODO 4.5
// After the unit's last backward node.
//
// Keep:  when the reduction is issued, this unit's full parameters and the previous unit's full
//        gradient are freed already, however slow the link is.
// Hint:  open_calls counts forward calls. The unit's backward ends with the last of them.
void GradientReducer::post_backward(UnitGradients& gradients) {
  todo("4.5", gradients, reducing_);
}

// ------------------------------------------------------------------- TODO 4.6
// After the backward of a micro-step.
//
// Keep:  a unit that backward never reached still takes part in the reduction, with +0. What a rank
//        sends must not depend on facts that other ranks lack. Last unit first, as in backward.
void GradientReducer::end_of_backward() {
  todo("4.6", units_, micro_step_);
}

// ------------------------------------------------------------------- TODO 4.7
// Average over all J = W·M micro-batches: one multiplication at the very end, by
// 1/(J · plan_.loss_scale). Multiply what to_shard_dtype(*gradients, *each.flat, sum) returns: in
// one dtype, that is the sum.
//
// Set:   shard_grad of every trainable FlatParameter; micro_step_ = 0.
void GradientReducer::finish_gradients() {
  todo("4.7", plan_, micro_step_, units_);
}

// ------------------------------------------------------------------- TODO 4.8
// Mixed precision: cast the full gradient before it is summed, and the sum before it is averaged
// (tensor/cast.h).
//
// Keep:  the copy of the full gradient (REDUCE_SCATTER of this unit) replaces the full gradient,
//        which is freed. The copy of the sum counts as SHARDED_GRAD.
Tensor GradientReducer::to_reduce_dtype(const UnitGradients& gradients, const FlatParameter& flat) {
  const Tensor& gradient = flat.full_grad();
  if (gradient.dtype() == flat.reduce_dtype()) return gradient;
  todo("4.8", gradients);
}

Tensor GradientReducer::to_shard_dtype(const UnitGradients& gradients, const FlatParameter& flat,
                                       const Tensor& sum) {
  if (sum.dtype() == flat.shard().dtype()) return sum;
  todo("4.8", gradients);
}

}  // namespace fsdp
