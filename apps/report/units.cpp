#include "report/units.h"

#include "base/check.h"

#include <array>

namespace fsdp::report {
namespace {

template <std::size_t N>
Unit largest_that_fits(const std::array<Unit, N>& units, std::int64_t value) {
  Unit best = units.front();
  for (const Unit& unit : units) {
    if (unit.size <= value) best = unit;
  }
  return best;
}

}  // namespace

Unit time_unit(std::int64_t picoseconds) {
  static constexpr std::array<Unit, 5> kUnits{
      {{"ps", 1}, {"ns", 1000}, {"µs", 1000000}, {"ms", 1000000000}, {"s", 1000000000000}}};
  return largest_that_fits(kUnits, picoseconds);
}

Unit byte_unit(std::int64_t nbytes) {
  static constexpr std::array<Unit, 4> kUnits{
      {{"B", 1}, {"kB", 1000}, {"MB", 1000000}, {"GB", 1000000000}}};
  return largest_that_fits(kUnits, nbytes);
}

std::string in_unit(std::int64_t value, Unit unit, int decimals) {
  std::int64_t power = 1;
  for (int i = 0; i < decimals; ++i) power *= 10;
  if (unit.size < power) power = unit.size;  // nothing smaller than one
  const std::int64_t grain = unit.size / power;
  const std::int64_t rounded = (value + grain / 2) / grain;
  std::string text = std::to_string(rounded / power);
  if (power > 1 && rounded % power != 0) {
    std::string fraction = std::to_string(power + rounded % power).substr(1);
    while (fraction.back() == '0') fraction.pop_back();
    text += '.' + fraction;
  }
  return text + ' ' + std::string(unit.name);
}

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > sign + 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::int64_t tick_step(std::int64_t length, int ticks) {
  FSDP_CHECK(length >= 0 && ticks > 0, "no axis of {} has {} ticks", length, ticks);
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t step : {power, 2 * power, 5 * power}) {
      if (length / step <= ticks) return step;
    }
  }
}

}  // namespace fsdp::report
