/// @file
/// @ingroup base
/// to_odd_float() of half_floats.h, for the processor and for CUDA kernels.
#pragma once

#include "base/host_device.h"

#include <cstdint>

namespace fsdp {

FSDP_HOST_DEVICE inline float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = bits_as<std::uint32_t>(nearest);
  const bool is_exact = static_cast<double>(nearest) == value || value != value;
  if (is_exact || (bits & 1U) != 0) return nearest;
  // The neighbor toward the value is odd. Magnitudes are in the order of their bits.
  const bool is_beyond = (static_cast<double>(nearest) > value) == (value > 0);
  return bits_as<float>(is_beyond ? bits - 1 : bits + 1);
}

}  // namespace fsdp
