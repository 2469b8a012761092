/// @file
/// @ingroup optim
/// The gradients of one step, as a training loop sees them: alike for a single process, DDP, FSDP.
#pragma once

#include "comm/process_group.h"
#include "optim/optimizer.h"
#include "optim/step_plan.h"
#include "tensor/exact_norm.h"
#include "tensor/tree_sum.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp::optim {

/// A loop over it:
///
///     engine.begin_step(plan);
///     for (int m = 0; m < plan.micro_steps; ++m) {
///       cross_entropy(model(x[j]), y[j], plan.loss_scale).backward(plan.loss_scale);
///       engine.end_micro_step();
///     }
///     engine.finish_gradients();                 // now, and only now, gradients exist
///     clip_by_global_norm(engine, group, 1.0);
///     optimizer.step(engine.pieces(), lr);
///     engine.zero_grad();
class GradientEngine {
 public:
  virtual ~GradientEngine() = default;
  virtual void begin_step(const StepPlan& plan) = 0;
  virtual void end_micro_step() = 0;
  /// Sums the micro-steps' gradients in the canonical order, and multiplies once by
  /// 1/(J · loss_scale). A parameter without a gradient gets +0.
  virtual void finish_gradients() = 0;
  /// The pieces to update. Gradients are defined between finish_gradients and zero_grad.
  virtual std::vector<Piece>& pieces() = 0;
  /// Adds the squares of this rank's pieces. Over all ranks, every element counts once.
  virtual void add_squares(ExactSquareSum& sum) = 0;
  /// Frees the gradients.
  virtual void zero_grad() = 0;
};

/// The norm of a finished ExactSquareSum: the square root of its value.
double norm_of(const ExactSquareSum& squares);
/// The factor for all gradients: max_norm / (norm + 1e-6) if that is below 1, else 1.
/// @throws Error if the norm is not finite, or max_norm not positive.
double clip_factor(double norm, double max_norm);
/// Multiplies all gradients by a factor of clip_factor(). 1 changes nothing.
void scale_gradients(GradientEngine& engine, double factor);
/// The exact norm of the whole gradient, times `factor`, equal on every rank and for every W.
/// `group` may be null.
double global_grad_norm(GradientEngine& engine, ProcessGroup* group, double factor = 1);
/// Scales gradients by max_norm / (norm + 1e-6) if that is below 1. Returns the norm before.
/// @throws Error if the norm is not finite.
double clip_by_global_norm(GradientEngine& engine, ProcessGroup* group, double max_norm);

}  // namespace fsdp::optim
