/// @file
/// bfloat16, as a format to store: conversions only. Arithmetic is done in float. Conversions
/// to it round to nearest, ties to even; the other way they are exact.
#pragma once

#include "cuda_runtime.h"

#include "base/half_floats.h"

#include <bit>

struct __nv_bfloat16 {
  unsigned short bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(value == value ? fsdp::BFloat16(value).bits : 0x7FFF) {}
  operator float() const { return static_cast<float>(std::bit_cast<fsdp::BFloat16>(bits)); }
};
using nv_bfloat16 = __nv_bfloat16;

// Sums in 16 bits round every time; convert to float first.
void operator+(__nv_bfloat16, __nv_bfloat16) = delete;
void operator-(__nv_bfloat16, __nv_bfloat16) = delete;
void operator*(__nv_bfloat16, __nv_bfloat16) = delete;
void operator/(__nv_bfloat16, __nv_bfloat16) = delete;

/// Two of them, loaded and stored at once.
struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;

  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 first, __nv_bfloat16 second) : x(first), y(second) {}
  __nv_bfloat162(const __nv_bfloat162& other) { *this = other; }
  __nv_bfloat162& operator=(const __nv_bfloat162& other) {
    cuda_on_host::check_alignment(&other, sizeof(__nv_bfloat162));
    cuda_on_host::check_alignment(this, sizeof(__nv_bfloat162));
    x = other.x;
    y = other.y;
    return *this;
  }
};
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) {
  return {__nv_bfloat16(pair.x), __nv_bfloat16(pair.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 pair) { return {pair.x, pair.y}; }
inline float __low2float(__nv_bfloat162 pair) { return pair.x; }
inline float __high2float(__nv_bfloat162 pair) { return pair.y; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 value;
  value.bits = bits;
  return value;
}
