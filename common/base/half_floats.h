/// @file
/// @ingroup base
/// The 16-bit floats: formats to store numbers in. Arithmetic on them is done in float32.
#pragma once

#include "base/host_device.h"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace fsdp {

/// float64 to float32 such that rounding the result to 16 bits rounds `value` once: an inexact
/// result is odd in its last bit, so it never lies in the middle between two 16-bit floats.
FSDP_HOST_DEVICE inline float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = bits_as<std::uint32_t>(nearest);
  const bool is_exact = static_cast<double>(nearest) == value || value != value;
  if (is_exact || (bits & 1U) != 0) return nearest;
  // The neighbor toward the value is odd. Magnitudes are in the order of their bits.
  const bool is_beyond = (static_cast<double>(nearest) > value) == (value > 0);
  return bits_as<float>(is_beyond ? bits - 1 : bits + 1);
}

/// The upper half of a float32: its range with 8 bits of precision. Rounding to it changes a value
/// by at most 2^-8 of itself.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  /// To nearest, ties to even; what is beyond the largest value becomes infinite. A NaN stays one.
  explicit BFloat16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (wide + 0x7FFFU + ((wide >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet_nan = (wide >> 16U) | 0x40U;
    bits = static_cast<std::uint16_t>((wide & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded);
  }
  explicit BFloat16(double value) : BFloat16(rounded_to_odd(value)) {}
  /// Exact.
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
};

/// IEEE 754's binary16: 11 bits of precision from 2^-14 to 65504, and multiples of 2^-24 below.
/// Rounding to it changes a value by at most 2^-11 of itself, or 2^-25.
struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  /// As for BFloat16; 65520 and more become infinite.
  explicit Float16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = wide & 0x7FFFFFFFU;
    // Beside 0.5, a float32 is rounded to a multiple of 2^-24, the smallest binary16.
    const float beside_half = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t small = std::bit_cast<std::uint32_t>(beside_half) - 0x3F000000U;
    const std::uint32_t normal =
        (magnitude - (112U << 23U) + 0xFFFU + ((magnitude >> 13U) & 1U)) >> 13U;
    std::uint32_t result = magnitude < (113U << 23U) ? small : normal;
    result = magnitude >= 0x477FF000U ? 0x7C00U : result;  // from 65520 on
    const std::uint32_t quiet_nan = 0x7E00U | ((magnitude >> 13U) & 0x3FFU);
    result = magnitude > 0x7F800000U ? quiet_nan : result;
    bits = static_cast<std::uint16_t>(result | ((wide >> 16U) & 0x8000U));
  }
  explicit Float16(double value) : Float16(rounded_to_odd(value)) {}
  explicit operator float() const {
    const std::uint32_t magnitude = bits & 0x7FFFU;
    const std::uint32_t normal = (magnitude << 13U) + (112U << 23U);
    // A multiple of 2^-24, which 0.5 has as its last bit.
    const auto small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x3F000000U | magnitude) - 0.5F);
    std::uint32_t wide = magnitude < 0x400U ? small : normal;
    wide = magnitude >= 0x7C00U ? normal + (112U << 23U) : wide;
    return std::bit_cast<float>(wide | ((bits & 0x8000U) << 16U));
  }
};

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// The type in which operations on T compute: float for the 16-bit floats, else T itself.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

}  // namespace fsdp
