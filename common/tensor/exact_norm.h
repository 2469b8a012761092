/// @file
/// @ingroup tensor
/// The sum of squares without rounding: no way of cutting a vector changes it.
#pragma once

#include "tensor/costs.h"
#include "tensor/tensor.h"

#include <cstdint>

namespace fsdp {

/// Sum of squares of float32 values, exact. A float is m·2^e with a 24-bit m; its square is the
/// 48-bit integer m² at exponent 2e. Each exponent has a counter of two limbs, with the value
/// (low + high·2^24)·2^(2e). A square, or whole multiples of 2^(2e) cut from a sum of squares, may
/// be counted at any exponent that holds it without rounding. Integers add exactly in any order. At
/// the end one fixed fold turns all counters into a double, rounded once. 2^39 elements fit.
/// Infinities and NaNs are counted separately.
///
/// The counters are one int64 tensor, so all_reduce(sum) over ranks is exact too.
class ExactSquareSum {
 public:
  static constexpr std::int64_t kCounters = costs::kSquareCounters;
  /// The counters, zero. Counted as TEMP.
  ExactSquareSum() : ExactSquareSum(1) {}
  /// @param factor  squares are those of the values times this, rounded as ops::scale() would
  explicit ExactSquareSum(double factor);
  /// Adds the square of every element of a contiguous float32 tensor, which stays as it is.
  void add(const Tensor& values);
  /// (kCounters) int64: low limbs, high limbs, infinities, NaNs.
  const Tensor& counters() const { return counters_; }
  /// The sum of squares: inf if there was an infinity, NaN if there was a NaN.
  double value() const;

 private:
  Tensor counters_;
  float factor_;
};

}  // namespace fsdp
