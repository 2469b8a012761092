/// @file
/// @ingroup tensor
/// Vectors of a fixed width on every machine: 8 floats or 4 doubles. Only the product also uses the
/// widest vectors of the machine, since each of its sums stays in one lane. A vector of 16-bit
/// floats has 8 floats too: they are widened when they are loaded and rounded when they are stored.
///
/// Kernels reduce into these lanes explicitly. So this code sets the order of every addition, not
/// the compiler, the alignment or the length of a tail.
#pragma once

#include "base/half_floats.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>
#if defined(__F16C__)
#include <immintrin.h>
#endif

// Builds for machines without 32-byte registers split these types in two; nothing crosses a library
// border by value, so the note about the calling convention does not concern us.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace fsdp::simd {

template <class T, std::int64_t Bytes>
struct VectorOf {
  // g++ ignores the attribute where `using` names a type that depends on T.
  typedef T Values __attribute__((vector_size(Bytes)));  // NOLINT(modernize-use-using)
};

/// kLanes<float> = 8 elements of T, with + - * / and comparisons lane by lane.
template <class T>
using Vec = typename VectorOf<Wide<T>, 32>::Values;
template <class T>
using Mask = std::conditional_t<sizeof(Wide<T>) == 4, Vec<std::int32_t>, Vec<std::int64_t>>;
template <class T>
inline constexpr std::int64_t kLanes = 32 / static_cast<std::int64_t>(sizeof(Wide<T>));

// The widest vector registers that the compiler may use here, and how many of them there are.
#if defined(__AVX512F__)
inline constexpr std::int64_t kRegisterBytes = 64, kRegisters = 32;
#elif defined(__AVX__)
inline constexpr std::int64_t kRegisterBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
inline constexpr std::int64_t kRegisterBytes = 16, kRegisters = 32;
#else
inline constexpr std::int64_t kRegisterBytes = 16, kRegisters = 16;
#endif

/// body(integral_constant 0), …, body(integral_constant N - 1), written out, so that arrays of
/// vectors indexed by them stay in registers.
template <int N, class Body>
inline __attribute__((always_inline)) void unroll(Body&& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

/// Elements of a vector type V.
template <class V>
inline constexpr int kLanesOf = static_cast<int>(sizeof(V) / sizeof(V{}[0]));

// The conversions of half_floats.h, eight at a time. x86 has instructions for binary16.
using Halves = VectorOf<std::uint16_t, 16>::Values;
using Bits = VectorOf<std::uint32_t, 32>::Values;

template <class T>
inline Vec<float> widened(Halves halves) {
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    return std::bit_cast<Vec<float>>(_mm256_cvtph_ps(std::bit_cast<__m128i>(halves)));
  }
#endif
  const Bits wide = __builtin_convertvector(halves, Bits);
  if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<Vec<float>>(wide << 16U);
  } else {
    const Bits magnitude = wide & 0x7FFFU;
    const Bits normal = (magnitude << 13U) + (112U << 23U);
    const Bits small =
        std::bit_cast<Bits>(std::bit_cast<Vec<float>>(0x3F000000U | magnitude) - 0.5F);
    const auto ordered = std::bit_cast<Mask<float>>(magnitude);
    Bits result = ordered < 0x400 ? small : normal;
    result = ordered >= 0x7C00 ? normal + (112U << 23U) : result;
    return std::bit_cast<Vec<float>>(result | ((wide & 0x8000U) << 16U));
  }
}

template <class T>
inline Halves narrowed(Vec<float> v) {
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    constexpr int kNearest = 0;
    return std::bit_cast<Halves>(_mm256_cvtps_ph(std::bit_cast<__m256>(v), kNearest));
  }
#endif
  const Bits wide = std::bit_cast<Bits>(v);
  const Bits magnitude = wide & 0x7FFFFFFFU;
  const auto ordered = std::bit_cast<Mask<float>>(magnitude);  // signed: quicker to compare
  if constexpr (std::is_same_v<T, BFloat16>) {
    const Bits rounded = (wide + 0x7FFFU + ((wide >> 16U) & 1U)) >> 16U;
    const Bits quiet_nan = (wide >> 16U) | 0x40U;
    return __builtin_convertvector(ordered > 0x7F800000 ? quiet_nan : rounded, Halves);
  } else {
    const Bits small =
        std::bit_cast<Bits>(std::bit_cast<Vec<float>>(magnitude) + 0.5F) - 0x3F000000U;
    const Bits normal = (magnitude - (112U << 23U) + 0xFFFU + ((magnitude >> 13U) & 1U)) >> 13U;
    const Bits quiet_nan = 0x7E00U | ((magnitude >> 13U) & 0x3FFU);
    Bits result = ordered < (113 << 23) ? small : normal;
    result = ordered >= 0x477FF000 ? Bits{} + 0x7C00U : result;
    result = ordered > 0x7F800000 ? quiet_nan : result;
    return __builtin_convertvector(result | ((wide >> 16U) & 0x8000U), Halves);
  }
}

template <class T, class V = Vec<T>>
inline V splat(Wide<T> value) {
  V v{};
  for (int i = 0; i < kLanesOf<V>; ++i) v[i] = value;
  return v;
}
template <class T, class V = Vec<T>>
inline V load(const T* from) {
  if constexpr (kIsHalf<T>) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return widened<T>(halves);
  } else {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
}
/// Keeps a loaded vector in its register. Otherwise GCC loads it again for each use, and the loads
/// bound the speed of a product.
template <class V>
inline void hold(V& v) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) <= kRegisterBytes) __asm__("" : "+v"(v));
#else
  static_cast<void>(v);
#endif
}
template <class T, class V>
inline void store(T* to, V v) {
  if constexpr (kIsHalf<T>) {
    const Halves halves = narrowed<T>(v);
    std::memcpy(to, &halves, sizeof halves);
  } else {
    std::memcpy(to, &v, sizeof v);
  }
}
/// As if stored and loaded again.
template <class T>
inline Vec<T> rounded(Vec<T> v) {
  if constexpr (kIsHalf<T>) return widened<T>(narrowed<T>(v));
  return v;
}
/// The first `count` lanes; the others are zero.
template <class T>
inline Vec<T> load_some(const T* from, std::int64_t count) {
  T lanes[kLanes<T>] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load<T>(lanes);
}
template <class T>
inline void store_some(T* to, Vec<T> v, std::int64_t count) {
  T lanes[kLanes<T>];
  store<T>(lanes, v);
  for (std::int64_t i = 0; i < count; ++i) to[i] = lanes[i];
}

/// a * b + c, rounded once.
template <class T, class V>
inline V fma(V a, V b, V c) {
  V r;
  if constexpr (std::is_same_v<Wide<T>, float>) {
    for (int i = 0; i < kLanesOf<V>; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  } else {
    for (int i = 0; i < kLanesOf<V>; ++i) r[i] = __builtin_fma(a[i], b[i], c[i]);
  }
  return r;
}
template <class T>
inline Vec<T> sqrt(Vec<T> a) {
  Vec<T> r;
  if constexpr (std::is_same_v<Wide<T>, float>) {
    for (int i = 0; i < kLanes<T>; ++i) r[i] = __builtin_sqrtf(a[i]);
  } else {
    for (int i = 0; i < kLanes<T>; ++i) r[i] = __builtin_sqrt(a[i]);
  }
  return r;
}
/// b where it is larger; a NaN in b is ignored.
template <class T>
inline Vec<T> max(Vec<T> a, Vec<T> b) {
  return b > a ? b : a;
}

/// The sum of all lanes by one fixed tree: halves, quarters, pairs.
template <class T>
inline Wide<T> sum(Vec<T> v) {
  if constexpr (std::is_same_v<Wide<T>, float>) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  } else {
    return (v[0] + v[2]) + (v[1] + v[3]);
  }
}
template <class T>
inline Wide<T> largest(Vec<T> v) {
  Wide<T> result = v[0];
  for (int i = 1; i < kLanes<T>; ++i) result = v[i] > result ? v[i] : result;
  return result;
}

/// Constants of exp(): 2^n * polynomial(x - n ln 2), |x - n ln 2| <= ln 2 / 2.
template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLow = -87.0f, kHigh = 88.0f;
  static constexpr float kLog2e = 1.44269504088896341f;
  // 1.5 * 2^23: adding it rounds to an integer. The bias on top makes the low bits an exponent
  // field.
  static constexpr float kRound = 12582912.0f + 127;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  static constexpr int kMantissaBits = 23;
  // 1/k!, highest first
  static constexpr float kPolynomial[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                          1.0f / 6,    0.5f,       1.0f,       1.0f};
};
template <>
struct ExpConstants<double> {
  static constexpr double kLow = -708.0, kHigh = 709.0;
  static constexpr double kLog2e = 1.44269504088896340736;
  static constexpr double kRound = 6755399441055744.0 + 1023;  // 1.5 * 2^52 + bias
  static constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6;
  static constexpr int kMantissaBits = 52;
  static constexpr double kPolynomial[] = {1.0 / 6227020800,
                                           1.0 / 479001600,
                                           1.0 / 39916800,
                                           1.0 / 3628800,
                                           1.0 / 362880,
                                           1.0 / 40320,
                                           1.0 / 5040,
                                           1.0 / 720,
                                           1.0 / 120,
                                           1.0 / 24,
                                           1.0 / 6,
                                           0.5,
                                           1.0,
                                           1.0};
};

/// e^x for x within [kLow, kHigh] of ExpConstants, to about one unit in the last place. NaN gives
/// NaN. No libm: the same bits from every compiler, and eight at a time.
template <class T>
inline Vec<T> exp_in_range(Vec<T> x) {
  using C = ExpConstants<Wide<T>>;
  const Vec<T> shifted = fma<T>(x, splat<T>(C::kLog2e), splat<T>(C::kRound));
  const Vec<T> n = shifted - splat<T>(C::kRound);
  Vec<T> r = fma<T>(n, splat<T>(-C::kLn2High), x);
  r = fma<T>(n, splat<T>(-C::kLn2Low), r);
  Vec<T> p = splat<T>(C::kPolynomial[0]);
  unroll<static_cast<int>(std::size(C::kPolynomial)) - 1>(
      [&](auto i) { p = fma<T>(p, r, splat<T>(C::kPolynomial[i + 1])); });
  return p * std::bit_cast<Vec<T>>(std::bit_cast<Mask<T>>(shifted) << C::kMantissaBits);
}

/// e^x for x <= 0, up to rounding, as a softmax needs it. Below the range it gives the smallest
/// value in the range (1e-38, 1e-308).
template <class T>
inline Vec<T> exp_of_negative(Vec<T> x) {
  const Vec<T> low = splat<T>(ExpConstants<Wide<T>>::kLow);
  return exp_in_range<T>(x < low ? low : x);
}

/// e^x for any x: 0 below the range, e^kHigh above it.
template <class T>
inline Vec<T> exp(Vec<T> x) {
  const Vec<T> low = splat<T>(ExpConstants<Wide<T>>::kLow),
               high = splat<T>(ExpConstants<Wide<T>>::kHigh);
  const Vec<T> clamped = x > high ? high : (x < low ? low : x);
  return x < low ? Vec<T>{} : exp_in_range<T>(clamped);
}

/// Calls body(i, count) for i = 0, kLanes, 2 kLanes, … with count = kLanes, a constant, while a
/// whole vector fits, and a last time with the remaining count. The body is the same code for both.
template <class T, class Body>
inline void for_lanes(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>)
    body(i, std::integral_constant<std::int64_t, kLanes<T>>{});
  if (i < n) body(i, n - i);
}
/// load / store for the `count` of for_lanes.
template <class T, class Count>
inline Vec<T> load_n(const T* from, Count count) {
  if constexpr (std::is_same_v<Count, std::int64_t>) {
    return load_some<T>(from, count);
  } else {
    return load<T>(from);
  }
}
template <class T, class Count>
inline void store_n(T* to, Vec<T> v, Count count) {
  if constexpr (std::is_same_v<Count, std::int64_t>) {
    store_some<T>(to, v, count);
  } else {
    store<T>(to, v);
  }
}

}  // namespace fsdp::simd
