/// @file
/// @ingroup optim
/// Learning rates as functions of the step.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp::optim {

/// The options of a schedule; `step` counts from 0.
struct Schedule {
  enum class Kind { constant, warmup_linear, warmup_cosine, warmup_log } kind = Kind::constant;
  double lr = 1e-3;         ///< the highest rate
  double lr_min = 0;        ///< start of a warm-up (warmup_linear, warmup_log), end of the cosine
  std::int64_t warmup = 0;  ///< steps
  std::int64_t total = 0;   ///< all steps (cosine)

  /// constant       lr
  /// warmup_linear  lr_min + (lr - lr_min)·(i+1)/warmup until warmup, then lr
  /// warmup_cosine  lr·(i+1)/warmup, then half a cosine down to lr_min at `total`
  /// warmup_log     DeepSpeed's WarmupLR: lr_min + (lr - lr_min)·ln(i+1)/ln(warmup), then lr
  double at(std::int64_t step) const;
};
/// @throws InputError that lists the known names.
Schedule::Kind schedule_kind(const std::string& name);

}  // namespace fsdp::optim
