/// @file
/// @ingroup optim
/// Learning rates as functions of the step.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp::optim {

/// The options of a schedule; `step` counts from 0.
struct LrSchedule {
  enum class Kind {
    constant,
    warmup_linear,
    warmup_cosine,
    warmup_log,
    warmup_from_min,
    warmup_log_decay,
    warmup_from_min_decay,
    warmup_stable_linear,
    warmup_stable_sqrt,
    warmup_stable_cosine
  } kind = Kind::constant;
  double lr = 1e-3;               ///< the highest rate
  double min_lr = 0;              ///< start of a warm-up (but warmup_cosine's), end of a decay
  std::int64_t warmup_steps = 0;  ///< until the highest rate
  std::int64_t total_steps = 0;   ///< all steps, until the end of a decay
  std::int64_t decay_steps = 0;   ///< of warmup_stable_*: the last so many; 0 = all after warm-up

  /// constant         lr
  /// warmup_linear    min_lr + (lr - min_lr)·(i+1)/warmup_steps until warmup_steps, then lr
  /// warmup_cosine    lr·(i+1)/warmup_steps, then half a cosine down to min_lr at `total_steps`
  /// warmup_log       DeepSpeed's WarmupLR: min_lr + (lr - min_lr)·ln(i+1)/ln(warmup_steps), then
  ///                  lr
  /// warmup_from_min  its warmup_type linear: min_lr + (lr - min_lr)·i/warmup_steps, then lr
  /// warmup_log_decay, warmup_from_min_decay
  ///                  DeepSpeed's WarmupDecayLR: such a warm-up, then a line down to min_lr:
  ///                  min_lr + (lr - min_lr)·(total_steps - i)/(total_steps - warmup_steps)
  /// warmup_stable_linear, _sqrt, _cosine
  ///                  torchtitan's: lr·(i+1)/warmup_steps, then lr until total_steps - decay_steps,
  ///                  then min_lr + (lr - min_lr)·γ, with x the part of the decay that is done and
  ///                  γ = 1 - x, 1 - √x, or half a cosine. Warmup-Stable-Decay: Hu et al.,
  ///                  "MiniCPM" (2024), section 4
  double at(std::int64_t step) const;
  /// Whether the rate falls until `total_steps`.
  bool decays() const;
  /// Whether it is one of warmup_stable_*.
  bool is_stable() const;
};
/// @throws InputError that lists the known names.
LrSchedule::Kind lr_schedule_kind(const std::string& name);

}  // namespace fsdp::optim
