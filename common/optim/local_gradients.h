/// @file
/// @ingroup optim
/// The gradients of a model that is not sharded.
#pragma once

#include "autograd/variable.h"
#include "optim/gradient_engine.h"
#include "optim/master_weights.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::optim {

/// Gradients of whole parameters in one process: M micro-batches, summed in the canonical tree.
/// With W = 1 and M = J, every sharded run must equal it to the last bit.
class LocalGradients : public GradientEngine {
 public:
  /// Trainable parameters by path; those that do not require a gradient are left out. `masters` of
  /// parameters that the model reads in another format; they are what pieces() lists.
  /// `compression`: rounds what a rank would send, as ReduceOptions has it, so that one process has
  /// the bits of DDP on one rank.
  explicit LocalGradients(std::vector<std::pair<std::string, Variable>> parameters,
                          const MasterWeights& masters = {}, std::optional<DType> compression = {});

  void begin_step(const StepPlan& plan) override;
  void end_micro_step() override;
  void finish_gradients() override;
  std::vector<Piece>& pieces() override { return pieces_; }
  void add_squares(ExactSquareSum& sum) override;
  void zero_grad() override;

 private:
  struct Entry {
    std::string path;
    Variable variable;
    TreeAccumulator micro_batches;  // since the last rounding; compression
    TreeAccumulator accumulator;
    std::shared_ptr<const Owner> owner;
    DType reduce_dtype;
  };
  void compress_and_push(Entry& entry, const Tensor& leaf) const;

  std::optional<DType> compression_;
  std::vector<Entry> entries_;
  std::vector<Piece> pieces_;
  StepPlan plan_{.micro_steps = 0};  // none begun
  int micro_step_ = 0;               // completed ones
};

}  // namespace fsdp::optim
