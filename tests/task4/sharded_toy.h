/// @file
/// Runner: a toy model on one rank, sharded, with a GradientReducer. Put together by hand, since
/// fully_shard() is task 7.
///
/// Options of every scenario: width, layers, spare (each layer has an unused parameter), root (the
/// root has a weight, used first and last), tied (first and last layer share a weight), shared
/// (all layers do), nested (each layer contains another), frozen (list of path prefixes: such
/// parameters make a flat parameter of their own), split (so do biases), group (0 always, 1 never,
/// s within s ranks), keep (units that keep their parameters until backward), order (the layers
/// that forward calls), orders (one after the other, one per micro-step), aside (likewise: layers
/// that are called besides, and whose output is not used), micro_steps, per_reduction, double
/// (parameters are float64), param and reduce (mixed precision, graded/precision.h), loss_scale (of
/// the plan; the toy's own loss is not multiplied by it), replicas (of a
/// mesh).
#pragma once

#include "graded/recorder.h"
#include "support/toy_model.h"
#include "task4_backward/backward.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::graded {

class ShardedToy {
 public:
  explicit ShardedToy(Recorder& recorder);

  testing::Toy& model() { return model_; }
  GradientReducer& reducer() { return *reducer_; }
  /// In forward order, the root's (if it has parameters) first.
  std::vector<std::unique_ptr<ShardedUnit>>& units() { return units_; }
  ShardedUnit& unit() { return *units_.front(); }
  const optim::StepPlan& plan() const { return plan_; }

  /// The loss of this rank's micro-step `m` of step `step`.
  Variable loss(int m, int step = 0);
  /// A whole backward: of the loss, and of what it did not reach.
  void backward(const Variable& loss);

 private:
  Recorder& recorder_;
  testing::Toy model_;
  std::shared_ptr<ProcessGroup> group_;  // over which a unit is sharded
  optim::StepPlan plan_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::unique_ptr<GradientReducer> reducer_;
};

/// The trainable flat parameters of a unit.
std::vector<FlatParameter*> trainable_flats(const ShardedUnit& unit);
/// "layers.0 sharded", … in the order of the units.
std::vector<std::string> states_of(ShardedToy& toy);

/// The gradient that a scenario gives parameter number `index` of a flat parameter by hand. One
/// element is -0, one infinite.
Tensor given_gradient(const Recorder& recorder, Shape shape, std::size_t index);
/// Adds it to the parameter's gradient as a backward would: through the tape.
void contribute(const Recorder& recorder, const FlatParameter& flat, std::size_t index);
/// A full gradient that depends on rank and micro-step, padding included.
void fill_full_grad(const Recorder& recorder, const FlatParameter& flat, int m);

/// Runs `call` inside a backward, and ends that backward there.
void inside_backward(const std::function<void()>& call);
/// Runs the backward of `loss` up to that of `module`, and ends it there.
void backward_up_to(nn::Module& module, const Variable& loss);

}  // namespace fsdp::graded
