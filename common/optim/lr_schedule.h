/// @file
/// @ingroup optim
/// Learning rates as functions of the step.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp::optim {

/// The options of a schedule; `step` counts from 0.
struct LrSchedule {
  enum class Kind { constant, warmup_linear, warmup_cosine, warmup_log } kind = Kind::constant;
  double lr = 1e-3;   ///< the highest rate
  double min_lr = 0;  ///< start of a warm-up (warmup_linear, warmup_log), end of the cosine
  std::int64_t warmup_steps = 0;  ///< until the highest rate
  std::int64_t total_steps = 0;   ///< all steps (cosine)

  /// constant       lr
  /// warmup_linear  min_lr + (lr - min_lr)·(i+1)/warmup_steps until warmup_steps, then lr
  /// warmup_cosine  lr·(i+1)/warmup_steps, then half a cosine down to min_lr at `total_steps`
  /// warmup_log     DeepSpeed's WarmupLR: min_lr + (lr - min_lr)·ln(i+1)/ln(warmup_steps), then lr
  double at(std::int64_t step) const;
};
/// @throws InputError that lists the known names.
LrSchedule::Kind lr_schedule_kind(const std::string& name);

}  // namespace fsdp::optim
