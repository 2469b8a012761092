/// @file
/// @ingroup autograd
/// DeferredSum: a sum that the norm after it computes, in one pass over memory.
#pragma once

#include "autograd/variable.h"

#include <optional>

namespace fsdp {

/// add(x, y), whose elements are computed later: by the first rms_norm() of it on this thread, in
/// whatever module that is, or else by finish(). Until then nothing else may read them. A tape has
/// the same nodes as with add(). It holds the data of x and y until the sum is computed. In a
/// transformer others hold them as long; elsewhere the peak may be higher than with add().
///
/// Those of a thread end in the reverse order of their beginning, on that thread: local variables.
class DeferredSum {
 public:
  DeferredSum(const Variable& x, Variable y);
  ~DeferredSum();
  DeferredSum(const DeferredSum&) = delete;
  DeferredSum& operator=(const DeferredSum&) = delete;

  struct Terms {
    Tensor x, y;
  };
  /// For a function of rows that can compute `rows` with what it does: its terms, if it is a sum
  /// that is still to be computed. From then on it counts as computed.
  static std::optional<Terms> take(const Tensor& rows);
  /// Computes `x` if it is a sum that is still to be computed: before anybody else reads it.
  static void settle(const Tensor& x);

  const Variable& result() const { return sum_; }
  /// result(), with its elements.
  const Variable& finish();

 private:
  static DeferredSum* pending(const Tensor& x);

  Variable sum_;
  std::optional<Terms> terms_;  // none: it is computed
  DeferredSum* outer_;
};

}  // namespace fsdp
