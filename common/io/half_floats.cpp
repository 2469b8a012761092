#include "io/half_floats.h"

#include "base/check.h"
#include "base/half_floats.h"

#include <cmath>
#include <cstddef>
#include <cstring>

namespace fsdp::io {

namespace {

template <class Half>
float widened(std::uint16_t bits) {
  Half half;
  half.bits = bits;
  return static_cast<float>(half);
}

}  // namespace

float from_bfloat16(std::uint16_t bits) { return widened<BFloat16>(bits); }
float from_float16(std::uint16_t bits) { return widened<Float16>(bits); }
std::uint16_t to_bfloat16(float value) { return BFloat16(value).bits; }
std::uint16_t to_float16(float value) { return Float16(value).bits; }

float largest_of(DType half) {
  FSDP_CHECK(size_of(half) == 2, "{} is no float of 16 bits", name_of(half));
  return half == DType::bfloat16 ? from_bfloat16(0x7F7F) : from_float16(0x7BFF);
}

const float* round_to(std::span<std::uint16_t> rounded, std::span<const float> values, DType half) {
  FSDP_CHECK(values.size() == rounded.size(), "{} values do not fit into {}", values.size(),
             rounded.size());
  const float most = largest_of(half);
  const float* beyond = nullptr;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    rounded[i] = half == DType::bfloat16 ? to_bfloat16(value) : to_float16(value);
    if (std::abs(value) <= most || beyond != nullptr) continue;
    const std::uint16_t magnitude = rounded[i] & 0x7FFFU;
    const bool is_infinite = magnitude == (half == DType::bfloat16 ? 0x7F80U : 0x7C00U);
    if (is_infinite && std::isfinite(value)) beyond = &values[i];
  }
  return beyond;
}

void widen_in_place(std::span<float> values, DType half) {
  FSDP_CHECK(size_of(half) == 2, "{} is no float of 16 bits", name_of(half));
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  const std::byte* const halves = bytes + values.size() * sizeof(std::uint16_t);
  // From the front: what float i overwrites are halves up to i, which have been read.
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, halves + i * sizeof bits, sizeof bits);
    const float value = half == DType::bfloat16 ? from_bfloat16(bits) : from_float16(bits);
    std::memcpy(bytes + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace fsdp::io
