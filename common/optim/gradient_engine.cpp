#include "optim/gradient_engine.h"

#include "base/check.h"

#include <algorithm>
#include <cmath>

namespace fsdp::optim {

double norm_of(const ExactSquareSum& squares) {
  // Without data there is nothing to know; the traffic and the time are as they would be.
  if (!squares.counters().device().has_data()) return 0;
  return std::sqrt(squares.value());
}

double clip_factor(double norm, double max_norm) {
  FSDP_CHECK(max_norm > 0, "the largest gradient norm must be positive, but is {}", max_norm);
  FSDP_CHECK(std::isfinite(norm),
             "the gradient norm is {}: a gradient overflowed; lower the learning rate, or look for "
             "the micro-batch whose loss is not finite",
             std::fabs(norm));  // a NaN may have a sign
  return std::min(max_norm / (norm + 1e-6), 1.0);
}

void scale_gradients(GradientEngine& engine, double factor) {
  for (Piece& piece : engine.pieces()) ops::scale(piece.grad, factor);
}

double global_grad_norm(GradientEngine& engine, ProcessGroup* group, double factor) {
  ExactSquareSum squares(factor);
  engine.add_squares(squares);
  if (group) {
    group->all_reduce(squares.counters(), ReduceOp::sum, {"grad_norm", Phase::optimizer}).wait();
  }
  return norm_of(squares);
}

double clip_by_global_norm(GradientEngine& engine, ProcessGroup* group, double max_norm) {
  const double norm = global_grad_norm(engine, group);
  scale_gradients(engine, clip_factor(norm, max_norm));
  return norm;
}

}  // namespace fsdp::optim
