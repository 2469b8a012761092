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
  // SOLUTION 4.1: todo(gradients)
  ShardedUnit& unit = *gradients.unit;
  unit.finish_unshard(Phase::backward);
  if (unit.scheduler != nullptr) unit.scheduler->before_backward(unit);
  if (gradients.is_prepared) return;
  gradients.is_prepared = true;
  for (FlatGradient& each : gradients.flats) {
    each.flat->full_grad().storage()->allocate();
    for (const nn::NamedParameter& parameter : each.flat->parameters()) {
      Variable(parameter.variable).reset_grad_buffer();
    }
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 4.2
// Complete the full gradient: +0 where no contribution came, and in the padding.
//
// Hint:  Variable::grad_written, Variable::grad_buffer.
void GradientReducer::complete_gradients(UnitGradients& gradients) {
  // SOLUTION 4.2: todo(gradients.flats)
  for (FlatGradient& each : gradients.flats) {
    const FlatParameter& flat = *each.flat;
    for (const nn::NamedParameter& parameter : flat.parameters()) {
      if (!parameter.variable.grad_written()) ops::fill(parameter.variable.grad_buffer(), 0);
    }
    const std::int64_t padding = flat.padded_numel() - flat.numel();
    ops::fill(flat.full_grad().narrow(0, flat.numel(), padding), 0);
  }
  // END SOLUTION
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
  // SOLUTION 4.3: todo(gradients, plan_, reductions_, reducing_)
  for (FlatGradient& each : gradients.flats) {
    each.input = to_reduce_dtype(gradients, *each.flat);
    if (plan_.micro_steps_per_reduction > 1) {
      each.full.push(each.input);
      if (!reduces_now()) continue;
      each.input = each.full.fold();
    }
    AllocationScope as_leaf(
        MemoryKind::reduce_scatter,
        std::make_shared<const Owner>(Owner{gradients.unit->name(), "gradient shard"}));
    each.leaf = Tensor::empty({each.flat->shard_numel()}, each.input.dtype(), each.input.device());
    reductions_.push_back(group_->reduce_scatter(each.leaf, each.input, ReduceOp::sum,
                                                 {gradients.unit->name(), Phase::gradient}));
    reducing_ = &gradients;
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 4.4
// Finish the reduction in flight, if any. Afterwards nothing is in flight, what was sent is freed,
// and the shard is part of the unit's sum.
//
// Keep:  a running reduction still uses what it sends and what it receives.
// Hint:  a leaf that was pushed to `sharded` counts as SHARDED_GRAD from then on.
void GradientReducer::finish_reduce() {
  // SOLUTION 4.4: todo(reductions_, reducing_)
  if (reducing_ == nullptr) return;
  for (Work& reduction : reductions_) reduction.wait();
  reductions_.clear();
  for (FlatGradient& each : reducing_->flats) {
    each.input.storage()->free();
    each.input = Tensor();
    each.sharded.push(each.leaf);
    each.leaf = Tensor();
  }
  reducing_ = nullptr;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 4.5
// After the unit's last backward node.
//
// Keep:  when the reduction is issued, this unit's full parameters and the previous unit's full
//        gradient are freed already, however slow the link is.
// Hint:  open_calls counts forward calls. The unit's backward ends with the last of them.
void GradientReducer::post_backward(UnitGradients& gradients) {
  // SOLUTION 4.5: todo(gradients, reducing_)
  if (--gradients.open_calls > 0) return;
  gradients.is_done = true;
  complete_gradients(gradients);
  gradients.unit->reshard();
  finish_reduce();
  start_reduce(gradients);
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 4.6
// After the backward of a micro-step.
//
// Keep:  a unit that backward never reached still takes part in the reduction, with +0. What a rank
//        sends must not depend on facts that other ranks lack. Last unit first, as in backward.
void GradientReducer::end_of_backward() {
  // SOLUTION 4.6: todo(units_, micro_step_)
  for (auto each = units_.rbegin(); each != units_.rend(); ++each) {
    UnitGradients& gradients = **each;
    if (!gradients.is_done) {
      for (FlatGradient& flat : gradients.flats) {
        flat.flat->full_grad().storage()->allocate();
        if (gradients.is_prepared) continue;
        for (const nn::NamedParameter& parameter : flat.flat->parameters()) {
          Variable(parameter.variable).reset_grad_buffer();
        }
      }
      gradients.open_calls = 0;
      post_backward(gradients);
    }
    gradients.is_prepared = gradients.is_done = false;
    gradients.open_calls = 0;
  }
  finish_reduce();
  for (const auto& gradients : units_) gradients->unit->reshard();
  ++micro_step_;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 4.7
// Average over all J = W·M micro-batches: one multiplication at the very end, by
// 1/(J · plan_.loss_scale). Multiply what to_shard_dtype(*gradients, *each.flat, sum) returns: in
// one dtype, that is the sum.
//
// Set:   shard_grad of every trainable FlatParameter; micro_step_ = 0.
void GradientReducer::finish_gradients() {
  // SOLUTION 4.7: todo(plan_, micro_step_, units_)
  FSDP_CHECK(micro_step_ == plan_.micro_steps,
             "finish_gradients after {} of {} micro-steps: run backward once per micro-step",
             micro_step_, plan_.micro_steps);
  const double micro_batches = static_cast<double>(group_->size()) * plan_.micro_steps;
  for (const auto& gradients : units_) {
    for (FlatGradient& each : gradients->flats) {
      const Tensor mean = to_shard_dtype(*gradients, *each.flat, each.sharded.fold());
      ops::scale(mean, 1.0 / micro_batches / plan_.loss_scale);
      each.flat->set_shard_grad(mean);
    }
  }
  micro_step_ = 0;
  // END SOLUTION
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
  // SOLUTION 4.8: todo(gradients)
  const AllocationScope as_input(
      MemoryKind::reduce_scatter,
      std::make_shared<const Owner>(Owner{gradients.unit->name(), "cast gradient"}));
  return recast(gradient, flat.reduce_dtype());
  // END SOLUTION
}

Tensor GradientReducer::to_shard_dtype(const UnitGradients& gradients, const FlatParameter& flat,
                                       const Tensor& sum) {
  if (sum.dtype() == flat.shard().dtype()) return sum;
  // SOLUTION 4.8: todo(gradients)
  const AllocationScope as_gradient(
      MemoryKind::sharded_grad,
      std::make_shared<const Owner>(Owner{gradients.unit->name(), "gradient"}));
  return cast(sum, flat.shard().dtype());
  // END SOLUTION
}

}  // namespace fsdp
