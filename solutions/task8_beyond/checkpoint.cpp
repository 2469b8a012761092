// Task 8, optional: activation checkpointing.     Handout: tasks/task8_beyond/README.md
// Edit only this file and mesh.cpp. Types and data members: checkpoint.h
// Check with:  make test-task8

#include "task8_beyond/checkpoint.h"

#include "autograd/backward.h"
#include "base/check.h"
#include "base/todo.h"
#include "device/memory_tracker.h"

#include <memory>
#include <utility>
#include <vector>

namespace fsdp {

namespace {

std::string called(const nn::Module& module) {
  return module.path().empty() ? "the model" : module.path();
}

// A unit below would be used in a second forward that its prefetcher takes for a first one.
void check_innermost(nn::Module& module) {
  for (nn::Module* below : module.modules()) {
    FSDP_CHECK(below == &module || below->unit_name().empty(),
               "{} is checkpointed, but a module within it is a unit: {}. Checkpoint the units "
               "themselves instead",
               called(module), below->unit_name());
  }
}

}  // namespace

Checkpoint::Checkpoint(Tensor x, nn::Call call) : x_(std::move(x)), call_(std::move(call)) {}

// ------------------------------------------------------------------- TODO 8.4
// Run the call without a tape, and record one node in its place.
//
// Keep:  the node's inputs are x and every parameter of the module, those that the call may not
//        use included. Frozen ones do no harm.
// Hint:  NoGradScope, Node::record, Module::named_parameters.
Variable Checkpoint::run(nn::Module& module, const Variable& x, const nn::Call& call) {
  // SOLUTION 8.4: todo(module, x, call)
  if (!grad_enabled()) return call(x);
  Variable y;
  {
    const NoGradScope no_grad;
    y = call(x);
  }
  std::vector<Variable> inputs{x};
  for (const nn::NamedParameter& each : module.named_parameters()) inputs.push_back(each.variable);
  return record(std::make_shared<Checkpoint>(x.data(), call), std::move(inputs), y.data());
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 8.5
// Run the call again, with a tape, and then that tape.
//
// Keep:  inside a backward nothing is recorded, and allocations are TEMP. For the call you need the
//        opposite of both. Hold x no longer than the call, and y not during its backward.
// Hint:  GradScope, AllocationScope, Node::input, fsdp::backward.
void Checkpoint::backward(const Tensor& dout) {
  // SOLUTION 8.5: todo(dout, x_, call_)
  Variable y;
  {
    const GradScope recording(true);
    const AllocationScope as_activation(MemoryKind::activation);
    y = call_(input(0, std::exchange(x_, {})));
  }
  fsdp::backward(std::move(y), dout);
  // END SOLUTION
}

void checkpoint(nn::Module& module) {
  module.wrap_forward([](nn::Module& self, const Variable& x, const nn::Call& call) {
    check_innermost(self);
    return Checkpoint::run(self, x, call);
  });
}

void checkpoint_around(ShardedUnit& unit) {
  const auto checkpointed = std::make_shared<CheckpointedUnit>(unit);
  unit.module().wrap_call(
      [checkpointed](nn::Module& self, const Variable& x, const nn::Call& call) {
        check_innermost(self);
        return checkpointed->run(self, x, call);
      });
  unit.scheduler = checkpointed.get();
  unit.backward = checkpointed.get();
}

CheckpointedUnit::CheckpointedUnit(ShardedUnit& unit)
    : scheduler_(unit.scheduler), backward_(unit.backward) {}

// ------------------------------------------------------------------- TODO 8.6
// Checkpoint the call of a unit, hooks included.
//
// Keep:  the table of checkpoint.h. If the module is called several times in one forward, as many
//        backwards follow. So call after_forward for each of them in forward, not in backward when
//        the first ones may be over. Both slots may have been empty.
// Hint:  the first forward has no tape. So with grad enabled, a hook belongs to the second one.
Variable CheckpointedUnit::run(nn::Module& module, const Variable& x, const nn::Call& call) {
  // SOLUTION 8.6: todo(module, x, call, backward_)
  Variable y = Checkpoint::run(module, x, call);
  if (grad_enabled() && backward_ != nullptr) backward_->after_forward();
  return y;
  // END SOLUTION
}

void CheckpointedUnit::before_forward(ShardedUnit& unit) {
  // SOLUTION 8.6: todo(unit, scheduler_)
  if (scheduler_ == nullptr) return;
  grad_enabled() ? scheduler_->before_backward(unit) : scheduler_->before_forward(unit);
  // END SOLUTION
}

void CheckpointedUnit::before_backward(ShardedUnit& unit) {
  // SOLUTION 8.6: todo(unit, scheduler_)
  if (scheduler_ != nullptr) scheduler_->before_backward(unit);
  // END SOLUTION
}

void CheckpointedUnit::after_forward() {
  // SOLUTION 8.6: todo()
  // Of the second forward: run() has reported the first one.
  // END SOLUTION
}

void CheckpointedUnit::pre_backward() {
  // SOLUTION 8.6: todo(backward_)
  if (backward_ != nullptr) backward_->pre_backward();
  // END SOLUTION
}

void CheckpointedUnit::post_backward() {
  // SOLUTION 8.6: todo(backward_)
  if (backward_ != nullptr) backward_->post_backward();
  // END SOLUTION
}

}  // namespace fsdp
