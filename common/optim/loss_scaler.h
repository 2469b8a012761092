/// @file
/// @ingroup optim
/// Factors of the loss that keep gradients of 16 bits away from zero and from infinity.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fsdp::optim {

/// The factor by which the loss, and so every gradient of a backward, is multiplied: a power of
/// two, so it changes no bit of a gradient that stays in range. When any gradient is not finite,
/// the step is skipped on every rank, and nothing changes but the scale. DeepSpeed's rule and
/// defaults (`fp16` in its configuration):
///
///     overflow       the first `hysteresis - 1` keep the scale; each further one halves it
///     `window` steps without overflow    double it, and the hysteresis begins anew
///
/// Unlike there, it is not doubled beyond 2^127, which is float32's greatest power of two.
class LossScaler {
 public:
  struct Options {
    double fixed = 0;  ///< a scale that never changes; 0 = dynamic
    int initial_power = 16;
    std::int64_t window = 1000;
    std::int64_t hysteresis = 2;
    bool consecutive_hysteresis = false;  ///< it begins anew at each step without overflow
    double least = 1;
  };
  /// Whether a loss may be scaled by it: a power of two.
  static bool is_scale(double value);
  /// No scaling: always 1.
  LossScaler();
  /// @throws Error unless all scales are powers of two, and the least is no more than the first.
  explicit LossScaler(const Options& options);

  double scale() const { return scale_; }  ///< of the next backward
  /// After a step, which `overflow` skipped. @throws Error if the scale would fall below the least.
  void update(bool overflow);

  /// For a checkpoint: "loss_scale", "loss_scale_step", …
  std::map<std::string, std::string> state() const;
  /// Continues from a state(). @throws Error naming an entry that is missing or no number.
  void restore(const std::map<std::string, std::string>& state);

 private:
  Options options_;
  double scale_;
  std::int64_t step_ = 0;
  std::int64_t last_overflow_ = -1;
  std::int64_t hysteresis_;  // overflows until the scale is halved
};

}  // namespace fsdp::optim
