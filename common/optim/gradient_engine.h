/// @file
/// @ingroup optim
/// The gradients of one step, as a training loop sees them: alike for a single process, DDP, FSDP.
#pragma once

#include "comm/process_group.h"
#include "optim/optimizer.h"
#include "tensor/exact_norm.h"
#include "tensor/tree_sum.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp::optim {

/// How one step processes its J = W·M micro-batches.
struct StepPlan {
  int micro_steps = 1;                ///< M: micro-batches of this rank
  int micro_steps_per_reduction = 1;  ///< L: divides M; 1 = reduce every time, more = no_sync
  double loss_scale = 1;  ///< d(loss) of every backward; finish_gradients() divides by it
  /// @throws Error unless L divides M.
  void validate() const;
  /// The global index of the micro-batch that rank r of W takes at micro-step m. With this map, a
  /// single process, accumulation and W ranks are cuts of one tree of additions.
  ///   j = ⌊m/L⌋·W·L + r·L + m mod L
  std::int64_t micro_batch(int m, int rank, int world_size) const;
  /// Whether gradients are reduced at the end of micro-step m, and not only summed on the rank.
  bool ends_reduction(int m) const { return (m + 1) % micro_steps_per_reduction == 0; }
  /// J · loss_scale: by what the sum of W ranks' gradients is divided.
  double divisor(int world_size) const {
    return static_cast<double>(world_size) * micro_steps * loss_scale;
  }
};

/// A loop over it:
///
///     engine.begin_step(plan);
///     for (int m = 0; m < plan.micro_steps; ++m) {
///       loss(model(x[j]), y[j]).backward(plan.loss_scale);
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
/// The exact norm of the whole gradient, equal on every rank and for every W. `group` may be null.
double global_grad_norm(GradientEngine& engine, ProcessGroup* group);
/// Scales gradients by max_norm / (norm + 1e-6) if that is below 1. Returns the norm before.
/// @throws Error if the norm is not finite.
double clip_by_global_norm(GradientEngine& engine, ProcessGroup* group, double max_norm);

}  // namespace fsdp::optim
