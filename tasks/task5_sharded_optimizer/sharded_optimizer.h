/// @file
/// @ingroup task5
/// Task 5: the optimizer sees shards only.
#pragma once

#include "comm/process_group.h"
#include "io/sharded_checkpoint.h"
#include "optim/gradient_engine.h"
#include "optim/optimizer.h"
#include "task2_flat_parameter/flat_parameter.h"

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

/// An elementwise optimizer over the shards of flat parameters.
///
///     state per rank: 2 · 4 · n bytes with AdamW, where a single process has 2 · 4 · N
///
/// Elementwise means: element i of the update depends only on element i of parameter, gradient and
/// state. So a rank can update its n elements without the others, and the bits are those of a
/// single process.
class ShardedOptimizer {
 public:
  /// `flats`: trainable ones are updated; frozen ones get no state. They must outlive this. Only
  /// clip_grad_norm() uses `group`, which may be null if that is never called.
  ShardedOptimizer(std::vector<FlatParameter*> flats, std::shared_ptr<optim::Optimizer> optimizer,
                   std::shared_ptr<ProcessGroup> group);

  /// 5.1  The pieces to update, one per trainable flat parameter: shard (n), shard_grad (n), key
  /// "<unit>#<index of the flat parameter>", and weight-decay flag.
  std::vector<optim::Piece> pieces() const;

  /// 5.2  One step on the shards. Afterwards the padding of parameters and state is zero, even if
  /// something wrote there before. (The given optimizer records the trace's `step` event.)
  void step(double lr);

  /// 5.3  Adds the squares of this rank's gradients, without padding. Over all ranks, every element
  /// counts once.
  void add_squares(ExactSquareSum& sum) const;

  /// 5.4  Scales all shard gradients by max_norm / (norm + 1e-6) if that is below 1. The norm is
  /// that of the whole gradient over all ranks. It is exact: equal on every rank and at every W.
  /// `squares` holds what counts in the norm besides the shards (task 7: this rank's part of the
  /// parameters that are not sharded), and zero otherwise.
  /// @return the norm before. @throws Error if it is not finite.
  double clip_grad_norm(double max_norm, ExactSquareSum squares = {});

  /// 5.5  This rank's part of the training state, by parameter path and without padding. Every
  /// piece of a parameter in the shard has a slice "param/<path>" and, if trainable, one
  /// "<state>/<path>" per state of the optimizer. The values are views of the live tensors. To load
  /// a checkpoint, written at any W, read it into them.
  std::vector<io::StateSlice> state_slices();

  optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  std::vector<FlatParameter*> flats_;
  std::shared_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<void> extra;  // spare, for the student
};

}  // namespace fsdp
