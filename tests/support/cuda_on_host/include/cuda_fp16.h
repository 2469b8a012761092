/// @file
/// Half precision, as a format to store: conversions only. Arithmetic is done in float. Conversions
/// to half round to nearest, ties to even; the other way they are exact.
#pragma once

#include "cuda_runtime.h"

#include "base/half_floats.h"

#include <bit>

struct __half {
  unsigned short bits;

  __half() = default;
  __half(float value) : bits(value == value ? fsdp::Float16(value).bits : 0x7FFF) {}
  operator float() const { return static_cast<float>(std::bit_cast<fsdp::Float16>(bits)); }
};
using half = __half;

// Sums in 16 bits round every time; convert to float first.
void operator+(__half, __half) = delete;
void operator-(__half, __half) = delete;
void operator*(__half, __half) = delete;
void operator/(__half, __half) = delete;

/// Two of them, loaded and stored at once.
struct __attribute__((aligned(4))) __half2 {
  __half x, y;

  __half2() = default;
  __half2(__half first, __half second) : x(first), y(second) {}
  __half2(const __half2& other) { *this = other; }
  __half2& operator=(const __half2& other) {
    cuda_on_host::check_alignment(&other, sizeof(__half2));
    cuda_on_host::check_alignment(this, sizeof(__half2));
    x = other.x;
    y = other.y;
    return *this;
  }
};
using half2 = __half2;

inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline float __half2float(__half value) { return value; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 pair) { return {__half(pair.x), __half(pair.y)}; }
inline float2 __half22float2(__half2 pair) { return {pair.x, pair.y}; }
inline float __low2float(__half2 pair) { return pair.x; }
inline float __high2float(__half2 pair) { return pair.y; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(unsigned short bits) {
  __half value;
  value.bits = bits;
  return value;
}
