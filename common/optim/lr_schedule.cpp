#include "optim/lr_schedule.h"

#include "base/check.h"
#include "base/fixed_math.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

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
    case Kind::warmup_log_decay:
      if (!is_warming) break;
      // DeepSpeed takes at least two warm-up steps, lest it divide by ln 1 = 0.
      return min_lr + (lr - min_lr) * fixed::log(i + 1) / fixed::log(std::max(ramp, 2.0));
    case Kind::warmup_from_min:
    case Kind::warmup_from_min_decay:
      if (!is_warming) break;
      return min_lr + (lr - min_lr) * i / ramp;
    case Kind::warmup_stable_linear:
    case Kind::warmup_stable_sqrt:
    case Kind::warmup_stable_cosine: {
      if (is_warming) return lr * (i + 1) / ramp;
      const std::int64_t after = total_steps - warmup_steps;
      const std::int64_t last = std::max<std::int64_t>(decay_steps == 0 ? after : decay_steps, 1);
      const std::int64_t begin = total_steps - last;
      const double done =
          std::clamp(static_cast<double>(step - begin) / static_cast<double>(last), 0.0, 1.0);
      const double left = kind == Kind::warmup_stable_linear ? 1 - done
                          : kind == Kind::warmup_stable_sqrt
                              ? 1 - std::sqrt(done)
                              : (1 + fixed::sin_cos(std::numbers::pi * done).cos) / 2;
      return min_lr + (lr - min_lr) * left;
    }
  }
  if (!decays()) return lr;
  const std::int64_t left = std::max<std::int64_t>(total_steps - step, 0);
  const std::int64_t all = std::max<std::int64_t>(total_steps - warmup_steps, 1);
  return min_lr + (lr - min_lr) * static_cast<double>(left) / static_cast<double>(all);
}

bool LrSchedule::decays() const {
  return kind == Kind::warmup_cosine || kind == Kind::warmup_log_decay ||
         kind == Kind::warmup_from_min_decay || is_stable();
}

bool LrSchedule::is_stable() const {
  return kind == Kind::warmup_stable_linear || kind == Kind::warmup_stable_sqrt ||
         kind == Kind::warmup_stable_cosine;
}

LrSchedule::Kind lr_schedule_kind(const std::string& name) {
  using Kind = LrSchedule::Kind;
  constexpr std::pair<const char*, Kind> kKinds[] = {
      {"constant", Kind::constant},
      {"warmup_linear", Kind::warmup_linear},
      {"warmup_cosine", Kind::warmup_cosine},
      {"warmup_log", Kind::warmup_log},
      {"warmup_from_min", Kind::warmup_from_min},
      {"warmup_log_decay", Kind::warmup_log_decay},
      {"warmup_from_min_decay", Kind::warmup_from_min_decay},
      {"warmup_stable_linear", Kind::warmup_stable_linear},
      {"warmup_stable_sqrt", Kind::warmup_stable_sqrt},
      {"warmup_stable_cosine", Kind::warmup_stable_cosine},
  };
  std::string known;
  for (const auto& [each, kind] : kKinds) {
    if (name == each) return kind;
    known += (known.empty() ? "" : ", ") + std::string(each);
  }
  throw InputError(fmt::format("unknown schedule '{}'; known are {}", name, known));
}

}  // namespace fsdp::optim
