#include "io/half_floats.h"

#include "base/check.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace fsdp::io {

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

float from_float16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // a multiple of 2^-24
    const auto magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
    return std::bit_cast<float>(sign | magnitude);
  }
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    const std::uint32_t payload = bits & 0x7F0000U;  // none left would be an infinity
    return static_cast<std::uint16_t>((bits >> 16U) | (payload == 0 ? 0x40U : 0U));
  }
  const std::uint32_t odd = (bits >> 16U) & 1U;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + odd) >> 16U);
}

std::uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (std::isnan(value)) {
    const std::uint32_t payload = (bits >> 13U) & 0x3FFU;
    half = 0x7C00U | (payload == 0 ? 0x200U : payload);
  } else if (magnitude >= std::bit_cast<std::uint32_t>(65520.0F)) {
    half = 0x7C00U;
  } else if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14F)) {  // a multiple of 2^-24
    const float multiple = std::bit_cast<float>(magnitude) * 0x1p24F;
    half = std::bit_cast<std::uint32_t>(multiple + 0x1p23F) & 0x7FFU;  // rounded by the addition
  } else {
    const std::uint32_t odd = (magnitude >> 13U) & 1U;
    half = ((magnitude + 0xFFFU + odd) >> 13U) - ((127U - 15U) << 10U);
  }
  return static_cast<std::uint16_t>(sign | half);
}

std::string_view name_of(Stored stored) {
  FSDP_CHECK(stored != Stored::as_dtype, "these values are not 16-bit floats");
  return stored == Stored::bfloat16 ? "bfloat16" : "float16";
}

float largest_of(Stored stored) {
  return stored == Stored::bfloat16 ? from_bfloat16(0x7F7F) : from_float16(0x7BFF);
}

const float* round_to(std::span<std::uint16_t> rounded, std::span<const float> values,
                      Stored stored) {
  FSDP_CHECK(values.size() == rounded.size(), "{} values do not fit into {}", values.size(),
             rounded.size());
  const float most = largest_of(stored);
  const float* beyond = nullptr;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    rounded[i] = stored == Stored::bfloat16 ? to_bfloat16(value) : to_float16(value);
    if (std::abs(value) <= most || beyond != nullptr) continue;
    const std::uint16_t magnitude = rounded[i] & 0x7FFFU;
    const bool is_infinite = magnitude == (stored == Stored::bfloat16 ? 0x7F80U : 0x7C00U);
    if (is_infinite && std::isfinite(value)) beyond = &values[i];
  }
  return beyond;
}

void widen_in_place(std::span<float> values, Stored stored) {
  FSDP_CHECK(stored != Stored::as_dtype, "these values are not 16-bit floats");
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  const std::byte* const halves = bytes + values.size() * sizeof(std::uint16_t);
  // From the front: what float i overwrites are halves up to i, which have been read.
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, halves + i * sizeof half, sizeof half);
    const float value = stored == Stored::bfloat16 ? from_bfloat16(half) : from_float16(half);
    std::memcpy(bytes + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace fsdp::io
