/// @file
/// @ingroup task8
/// Task 8, optional: activation checkpointing. Backward runs a module's forward again, instead of
/// the tape keeping what it computed.
#pragma once

#include "autograd/node.h"
#include "nn/module.h"
#include "task3_forward/forward.h"

#include <memory>
#include <string_view>

namespace fsdp {

/// A call of a module as one node of the tape.
///
///     forward    x --> [ call, without a tape ] --> y          kept: x alone
///     backward   x --> [ call, with a tape    ] --> (y)        the same bits as before
///               dx <-- [ its backward         ] <-- dy
///
/// Its inputs are x and all parameters of the module. So the tape around it still waits for their
/// gradients, and their hooks run once, when they are complete.
class Checkpoint : public Node {
 public:
  Checkpoint(Tensor x, nn::Call call);

  /// 8.4  Returns call(x). Nothing that it computed on the way is kept. With grad enabled, the
  /// result is that of one node, which keeps x; without, there is nothing to record.
  /// @param call the forward of `module`, or all of its call
  static Variable run(nn::Module& module, const Variable& x, const nn::Call& call);

  std::string_view name() const override { return "checkpoint"; }
  /// 8.5  Runs the call again, with a tape, and then that tape backward from `dout`. What the call
  /// allocates is ACTIVATION, as in forward. Nothing is held longer than without a checkpoint:
  /// neither x, nor y, nor dout.
  void backward(const Tensor& dout) override;
  void release() override { x_ = {}; }

 private:
  Tensor x_;
  nn::Call call_;
  std::shared_ptr<void> extra;  // spare, for the student
};

/// Checkpoints the forward of `module`, inside its hooks. If the module is a unit, or becomes one,
/// this is FSDP(checkpoint(m)): its second forward finds the parameters that backward has gathered.
/// @throws Error if it is checkpointed already; and from a call if a module below it is a unit.
void checkpoint(nn::Module& module);

/// checkpoint(FSDP(m)): checkpoints all that a call of the unit's module does, hooks included. So
/// the second forward gathers and reshards again. Call it when the model is sharded. After
/// the end of its ShardedModel, the module must not be called.
/// @throws Error as checkpoint() does.
void checkpoint_around(ShardedUnit& unit);

/// 8.6  Stands in both slots of such a unit, in front of what was there.
///
/// The first forward records nothing, and the second one runs in the middle of backward. This class
/// shows the prefetcher and the reducer what they would see without a checkpoint: a unit that is
/// used once in forward, and then in backward.
///
///     the unit            the scheduler sees    the reducer sees
///     first forward       before_forward        after_forward: a backward may come
///     second forward      before_backward       nothing
///     its backward        before_backward       pre_backward, post_backward
class CheckpointedUnit : public UnshardScheduler, public UnitBackward {
 public:
  explicit CheckpointedUnit(ShardedUnit& unit);

  /// The call of the unit's module.
  Variable run(nn::Module& module, const Variable& x, const nn::Call& call);
  void before_forward(ShardedUnit& unit) override;
  void before_backward(ShardedUnit& unit) override;
  void after_forward() override;
  void pre_backward() override;
  void post_backward() override;

 private:
  UnshardScheduler* scheduler_;  // null: none, as in the unit's slots
  UnitBackward* backward_;
  std::shared_ptr<void> extra;  // spare, for the student
};

}  // namespace fsdp
