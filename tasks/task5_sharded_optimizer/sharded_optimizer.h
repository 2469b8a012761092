/// @file
/// @ingroup task5
/// Task 5: the optimizer sees shards only.
#pragma once

#include "comm/process_group.h"
#include "nn/sharded_checkpoint.h"
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
/// Elementwise means that element i of the update depends on element i of parameter, gradient and
/// state alone; so a rank that owns n elements can update them without knowing the others, and the
/// bits are those of a single process.
class ShardedOptimizer {
 public:
  /// `flats`: the trainable ones are updated, the frozen ones get no state. They must outlive this.
  ShardedOptimizer(std::vector<FlatParameter*> flats, std::shared_ptr<optim::Optimizer> optimizer,
                   std::shared_ptr<ProcessGroup> group);

  /// 5.1  The pieces to update: per trainable flat parameter its shard (n) and shard_grad (n),
  /// under the key "<unit>#<index of the flat parameter>", with its weight-decay flag.
  std::vector<optim::Piece> pieces() const;

  /// 5.2  One step on the shards. Afterwards the padding is zero, in parameters and in state, even
  /// if something wrote there before. (The `step` event in the trace is the given optimizer's.)
  void step(double lr);

  /// 5.3  Adds the squares of this rank's gradients without padding: over all ranks every element
  /// counts once.
  void add_squares(ExactSquareSum& sum) const;

  /// 5.4  Scales all shard gradients by max_norm / (norm + 1e-6) if that is below 1, where norm is
  /// that of the whole gradient over all ranks: exact, hence equal on every rank and at every W.
  /// @return the norm before. @throws Error if it is not finite.
  double clip_grad_norm(double max_norm);

  /// 5.5  This rank's part of the training state, by parameter path and without padding: for every
  /// piece of a parameter in the shard a slice "param/<path>", and if trainable one
  /// "<state>/<path>" for each of the optimizer's state names. The values are views of the live
  /// tensors: reading a checkpoint into them loads it, at any W.
  std::vector<nn::StateSlice> state_slices();

  optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  std::vector<FlatParameter*> flats_;
  std::shared_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<void> extra;  // spare, for the student
};

}  // namespace fsdp
