#include "optim/loss_scaler.h"

#include "base/check.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fsdp::optim {

namespace {

constexpr double kGreatest = 0x1p127;

constexpr const char* kScale = "loss_scale";
constexpr const char* kStep = "loss_scale_step";
constexpr const char* kLastOverflow = "loss_scale_last_overflow";
constexpr const char* kHysteresis = "loss_scale_hysteresis";

template <class T>
T number_of(const std::map<std::string, std::string>& state, const char* name) {
  const auto found = state.find(name);
  FSDP_CHECK(found != state.end(), "{} is missing", name);
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  FSDP_CHECK(error == std::errc() && end == text.data() + text.size(), "{} is {}, not a number",
             name, text);
  return value;
}

}  // namespace

bool LossScaler::is_scale(double value) {
  int exponent = 0;
  return value > 0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5;
}

LossScaler::LossScaler() : LossScaler(Options{.fixed = 1}) {}

LossScaler::LossScaler(const Options& options)
    : options_(options),
      scale_(options.fixed != 0 ? options.fixed : std::ldexp(1.0, options.initial_power)),
      hysteresis_(options.hysteresis) {
  FSDP_CHECK(is_scale(scale_) && is_scale(options_.least),
             "a loss scale must be a power of two; got {} and at least {}", scale_, options_.least);
  FSDP_CHECK(options_.fixed != 0 || scale_ >= options_.least,
             "a loss scale begins at {}, but must be at least {}", scale_, options_.least);
  FSDP_CHECK(options_.window > 0 && options_.hysteresis > 0,
             "a loss scale needs a positive window and hysteresis; got {} and {}", options_.window,
             options_.hysteresis);
}

void LossScaler::update(bool overflow) {
  if (options_.fixed != 0) return;
  if (overflow) {
    if (hysteresis_ > 1) {
      --hysteresis_;
    } else {
      FSDP_CHECK(scale_ > options_.least,
                 "a gradient is not finite at the smallest loss scale, {}: it is not the scale "
                 "that makes it overflow",
                 options_.least);
      scale_ = std::max(scale_ / 2, options_.least);
    }
    last_overflow_ = step_;
  } else {
    if (options_.consecutive_hysteresis) hysteresis_ = options_.hysteresis;
    if ((step_ - last_overflow_) % options_.window == 0) {
      hysteresis_ = options_.hysteresis;
      scale_ = std::min(scale_ * 2, kGreatest);
    }
  }
  ++step_;
}

std::map<std::string, std::string> LossScaler::state() const {
  return {{kScale, fmt::format("{}", scale_)},
          {kStep, fmt::format("{}", step_)},
          {kLastOverflow, fmt::format("{}", last_overflow_)},
          {kHysteresis, fmt::format("{}", hysteresis_)}};
}

void LossScaler::restore(const std::map<std::string, std::string>& state) {
  const auto scale = number_of<double>(state, kScale);
  FSDP_CHECK(is_scale(scale), "{} is {}, not a power of two", kScale, scale);
  step_ = number_of<std::int64_t>(state, kStep);
  last_overflow_ = number_of<std::int64_t>(state, kLastOverflow);
  hysteresis_ = number_of<std::int64_t>(state, kHysteresis);
  scale_ = scale;
}

}  // namespace fsdp::optim
