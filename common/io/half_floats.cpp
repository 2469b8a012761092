#include "io/half_floats.h"

#include "base/check.h"

#include <bit>
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
