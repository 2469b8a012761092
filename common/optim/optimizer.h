/// @file
/// @ingroup optim
/// Optimizers over pieces of parameters.
#pragma once

#include "tensor/ops.h"
#include "tensor/tensor.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::optim {

/// Parameters that an optimizer updates at once: a whole parameter, or the shard of a unit.
/// Elementwise optimizers give the same bits, however parameters are cut into pieces.
struct Piece {
  std::string key;  ///< unique; names its state
  Tensor param;     ///< (n), contiguous; updated in place
  Tensor grad;      ///< (n); must be defined when step() is called
  bool decay = true;
  std::string unit;  ///< owner of the state, for the memory tracker
};

/// State tensors of one piece by name ("exp_avg", …).
using PieceState = std::map<std::string, Tensor>;

/// An optimizer of the table in tensor/optimizers.cpp.
class Optimizer {
 public:
  /// @throws Error if no optimizer has this name.
  explicit Optimizer(std::string_view name, const ops::OptimizerOptions& options = {});
  virtual ~Optimizer() = default;
  /// Updates every piece once, with learning rate `lr`. The first step allocates the state, counted
  /// as OPTIMIZER. @throws Error naming a piece without gradient.
  void step(std::vector<Piece>& pieces, double lr);
  /// The next step(), and no later one, takes every gradient times `mean`, and that times `clip`:
  /// the bits of two ops::scale(), without their passes over memory. Gradients stay as they are.
  void scale_next_gradients(double mean, double clip = 1) {
    mean_factor_ = mean;
    clip_factor_ = clip;
  }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Names of the state tensors, the same for every piece: AdamW {"exp_avg", "exp_avg_sq"}.
  std::vector<std::string> state_names() const;
  /// The state of a piece; allocated, with its initial values, if there is none.
  PieceState& state(const Piece& piece);
  bool has_state(const std::string& key) const { return states_.contains(key); }

 private:
  void update(Piece& piece, double lr);

  const ops::OptimizerRow* row_;
  ops::OptimizerOptions options_;
  std::int64_t steps_ = 0;  // completed steps; in update() also this one
  double mean_factor_ = 1, clip_factor_ = 1;
  std::map<std::string, PieceState> states_;
};

/// AdamW (Loshchilov and Hutter 2019), PyTorch's arithmetic.
class AdamW : public Optimizer {
 public:
  using Options = ops::OptimizerOptions;
  explicit AdamW(const Options& options) : Optimizer("adamw", options) {}
};

class Sgd : public Optimizer {
 public:
  struct Options {
    double momentum = 0;
    double weight_decay = 0;
  };
  explicit Sgd(const Options& options)
      : Optimizer("sgd", {.weight_decay = options.weight_decay, .momentum = options.momentum}) {}
};

}  // namespace fsdp::optim
