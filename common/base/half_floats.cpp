#include "base/half_floats.h"

namespace fsdp {

float to_odd_float(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool is_exact = static_cast<double>(nearest) == value || value != value;
  if (is_exact || (bits & 1U) != 0) return nearest;
  // The neighbor toward the value is odd. Magnitudes are in the order of their bits.
  const bool is_beyond = (static_cast<double>(nearest) > value) == (value > 0);
  return std::bit_cast<float>(is_beyond ? bits - 1 : bits + 1);
}

}  // namespace fsdp
