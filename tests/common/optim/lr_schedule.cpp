#include "optim/lr_schedule.h"

#include "base/check.h"
#include "support/catch.h"

#include <cmath>

namespace fsdp::optim {

namespace {
using Kind = LrSchedule::Kind;
bool is_near(double value, double expected) {
  return std::abs(value - expected) <= 1e-12 + 1e-9 * std::abs(expected);
}
}  // namespace

TEST_CASE("constant and linear warm-up") {
  CHECK(LrSchedule{.lr = 0.3}.at(0) == 0.3);
  CHECK(LrSchedule{.lr = 0.3}.at(1000000) == 0.3);
  const LrSchedule linear{.kind = Kind::warmup_linear, .lr = 1, .min_lr = 0.2, .warmup_steps = 4};
  CHECK(is_near(linear.at(0), 0.4));
  CHECK(is_near(linear.at(2), 0.8));
  CHECK(linear.at(3) == 1);
  CHECK(linear.at(4) == 1);
  CHECK(linear.at(400) == 1);
}

TEST_CASE(
    "cosine after a warm-up: to lr at its end, half way in the middle, min_lr at total_steps") {
  const LrSchedule cosine{
      .kind = Kind::warmup_cosine, .lr = 1, .min_lr = 0.1, .warmup_steps = 10, .total_steps = 110};
  CHECK(is_near(cosine.at(0), 0.1));
  CHECK(is_near(cosine.at(9), 1));
  CHECK(is_near(cosine.at(10), 1));
  CHECK(is_near(cosine.at(35), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2));
  CHECK(is_near(cosine.at(60), 0.55));
  CHECK(is_near(cosine.at(110), 0.1));
  CHECK(is_near(cosine.at(5000), 0.1));
}

TEST_CASE("DeepSpeed's WarmupLR is logarithmic") {
  const LrSchedule log{.kind = Kind::warmup_log, .lr = 1e-3, .warmup_steps = 1000};
  CHECK(log.at(0) == 0);
  CHECK(is_near(log.at(9), 1e-3 / 3));  // ln 10 / ln 1000
  CHECK(std::abs(log.at(499) - 8.997e-4) < 5e-8);
  CHECK(is_near(log.at(999), 1e-3));
  CHECK(log.at(1000) == 1e-3);
  const LrSchedule raised{
      .kind = Kind::warmup_log, .lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 1000};
  CHECK(raised.at(0) == 1e-4);
  CHECK(is_near(raised.at(9), 4e-4));
}

TEST_CASE("DeepSpeed's linear warm-up begins at min_lr, and its decay ends there") {
  const LrSchedule ramp{
      .kind = Kind::warmup_from_min, .lr = 1, .min_lr = 0.2, .warmup_steps = 4, .total_steps = 9};
  CHECK(ramp.at(0) == 0.2);
  CHECK(is_near(ramp.at(3), 0.8));
  CHECK(ramp.at(4) == 1);
  CHECK(ramp.at(400) == 1);
  CHECK(!ramp.decays());
  for (const Kind kind : {Kind::warmup_from_min_decay, Kind::warmup_log_decay}) {
    const LrSchedule decay{
        .kind = kind, .lr = 1, .min_lr = 0.2, .warmup_steps = 4, .total_steps = 12};
    CHECK(decay.at(0) == 0.2);
    CHECK(is_near(decay.at(1), kind == Kind::warmup_log_decay ? 0.6 : 0.4));  // ln 2 / ln 4
    CHECK(decay.at(4) == 1);
    CHECK(is_near(decay.at(6), 0.8));
    CHECK(decay.at(12) == 0.2);
    CHECK(decay.at(400) == 0.2);
    CHECK(decay.decays());
  }
}

TEST_CASE("torchtitan's schedule: a warm-up, a stable phase, and a decay at the end") {
  // Of 20 steps, 4 of warm-up and 10 of decay, to a fifth; from torchtitan's formula.
  const auto check = [](Kind kind, double at_11, double at_15, double at_19) {
    const LrSchedule schedule{.kind = kind,
                              .lr = 0.5,
                              .min_lr = 0.1,
                              .warmup_steps = 4,
                              .total_steps = 20,
                              .decay_steps = 10};
    CHECK(schedule.at(0) == 0.125);
    for (const int step : {3, 4, 9, 10}) CHECK(schedule.at(step) == 0.5);
    CHECK(is_near(schedule.at(11), at_11));
    CHECK(is_near(schedule.at(15), at_15));
    CHECK(is_near(schedule.at(19), at_19));
    CHECK(is_near(schedule.at(20), 0.1));
    CHECK(is_near(schedule.at(400), 0.1));
    CHECK(schedule.decays());
  };
  check(Kind::warmup_stable_linear, 0.46, 0.3, 0.14);
  check(Kind::warmup_stable_sqrt, 0.373508893593, 0.217157287525, 0.12052668078);
  check(Kind::warmup_stable_cosine, 0.490211303259, 0.3, 0.109788696741);
  // Without decay_steps it falls from the warm-up on.
  const LrSchedule whole{
      .kind = Kind::warmup_stable_linear, .lr = 1, .warmup_steps = 4, .total_steps = 20};
  CHECK(whole.at(4) == 1);
  CHECK(whole.at(5) == 0.9375);
  CHECK(whole.at(12) == 0.5);
  CHECK(whole.at(19) == 0.0625);
}

TEST_CASE("warm-ups of 0 and 1 steps, and cosines that end where they begin, divide by nothing") {
  for (const Kind kind :
       {Kind::warmup_linear, Kind::warmup_cosine, Kind::warmup_log, Kind::warmup_from_min,
        Kind::warmup_log_decay, Kind::warmup_from_min_decay, Kind::warmup_stable_linear,
        Kind::warmup_stable_sqrt, Kind::warmup_stable_cosine}) {
    for (const std::int64_t warmup_steps : {0, 1}) {
      const LrSchedule schedule{
          .kind = kind, .lr = 1, .warmup_steps = warmup_steps, .total_steps = warmup_steps};
      CHECK(std::isfinite(schedule.at(0)));
      CHECK(std::isfinite(schedule.at(warmup_steps)));
      CHECK(std::isfinite(schedule.at(warmup_steps + 1)));
    }
  }
}

TEST_CASE("schedules by name") {
  CHECK(lr_schedule_kind("constant") == Kind::constant);
  CHECK(lr_schedule_kind("warmup_linear") == Kind::warmup_linear);
  CHECK(lr_schedule_kind("warmup_cosine") == Kind::warmup_cosine);
  CHECK(lr_schedule_kind("warmup_log") == Kind::warmup_log);
  CHECK(lr_schedule_kind("warmup_from_min") == Kind::warmup_from_min);
  CHECK(lr_schedule_kind("warmup_log_decay") == Kind::warmup_log_decay);
  CHECK(lr_schedule_kind("warmup_from_min_decay") == Kind::warmup_from_min_decay);
  CHECK(lr_schedule_kind("warmup_stable_linear") == Kind::warmup_stable_linear);
  CHECK(lr_schedule_kind("warmup_stable_sqrt") == Kind::warmup_stable_sqrt);
  CHECK(lr_schedule_kind("warmup_stable_cosine") == Kind::warmup_stable_cosine);
  const std::string message = message_of<InputError>([] { lr_schedule_kind("cosine"); });
  CHECK(message.find("'cosine'") != std::string::npos);
  CHECK(message.find("warmup_cosine") != std::string::npos);
}

}  // namespace fsdp::optim
