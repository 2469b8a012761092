#include "optim/lr_schedule.h"

#include "base/check.h"
#include "base/fixed_math.h"

#include <algorithm>
#include <numbers>

namespace fsdp::optim {

double LrSchedule::at(std::int64_t step) const {
  const auto i = static_cast<double>(step);
  const auto ramp = static_cast<double>(warmup_steps);
  const bool is_warming = step < warmup_steps;
  switch (kind) {
    case Kind::constant:
      return lr;
    case Kind::warmup_linear:
      return is_warming ? min_lr + (lr - min_lr) * (i + 1) / ramp : lr;
    case Kind::warmup_cosine: {
      if (is_warming) return lr * (i + 1) / ramp;
      const auto decay = static_cast<double>(std::max<std::int64_t>(total_steps - warmup_steps, 1));
      const double done = std::min((i - ramp) / decay, 1.0);
      return min_lr + (lr - min_lr) * (1 + fixed::sin_cos(std::numbers::pi * done).cos) / 2;
    }
    case Kind::warmup_log:
      // DeepSpeed takes at least two warm-up steps, lest it divide by ln 1 = 0.
      if (!is_warming) return lr;
      return min_lr + (lr - min_lr) * fixed::log(i + 1) / fixed::log(std::max(ramp, 2.0));
  }
  fail("unknown schedule number {}", static_cast<int>(kind));
}

LrSchedule::Kind lr_schedule_kind(const std::string& name) {
  if (name == "constant") return LrSchedule::Kind::constant;
  if (name == "warmup_linear") return LrSchedule::Kind::warmup_linear;
  if (name == "warmup_cosine") return LrSchedule::Kind::warmup_cosine;
  if (name == "warmup_log") return LrSchedule::Kind::warmup_log;
  throw InputError(
      fmt::format("unknown schedule '{}'; known are constant, warmup_linear, warmup_cosine, "
                  "warmup_log",
                  name));
}

}  // namespace fsdp::optim
