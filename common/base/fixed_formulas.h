/// @file
/// @ingroup base
/// The formulas of fixed_math.h, for the processor and for CUDA kernels.
#pragma once

#include "base/host_device.h"

#include <cmath>
#include <cstdint>

namespace fsdp::fixed::formulas {

/// 1/First! + x/(First + Step)! + x²/(First + 2 Step)! + …, Terms terms.
template <int First, int Step, int Terms>
FSDP_HOST_DEVICE double series(double x) {
  struct Coefficients {
    double at[Terms];
  };
  constexpr Coefficients kInverse = [] {
    Coefficients coefficients{};
    double factorial = 1;
    for (int n = 1, i = 0; i < Terms; ++n) {
      if (n - 1 == First + i * Step) coefficients.at[i++] = 1 / factorial;
      factorial *= n;
    }
    return coefficients;
  }();
  double value = kInverse.at[Terms - 1];
  for (int i = Terms - 1; i-- > 0;) value = std::fma(value, x, kInverse.at[i]);
  return value;
}

// ln 2 in two parts: the first times any exponent is exact.
inline constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
/// Adding it rounds to an integer, which then stands in the low bits.
inline constexpr double kRound = 0x1.8p52;

FSDP_HOST_DEVICE inline double log(double x) {
  // x = m 2^e with m in [√½, √2), and ln m = 2 artanh((m - 1) / (m + 1)).
  auto bits = bits_as<std::uint64_t>(x);
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;  // √½
  bits -= kRootHalf;
  const auto exponent = static_cast<double>(static_cast<std::int64_t>(bits) >> 52);
  const auto mantissa = bits_as<double>((bits & 0x000fffffffffffffu) + kRootHalf);
  const double t = (mantissa - 1) / (mantissa + 1);  // |t| <= 0.1716
  const double square = t * t;
  double sum = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * kLn2High + (exponent * kLn2Low + (2 * t + 2 * t * (square * sum)));
}

FSDP_HOST_DEVICE inline double exp(double x) {
  if (x < -708) return 0;
  if (x > 709) return HUGE_VAL;
  if (x != x) return x;
  // x = n ln 2 + r with |r| <= ln 2 / 2.
  constexpr double kLog2e = 0x1.71547652b82fep0;
  const double shifted = std::fma(x, kLog2e, kRound);
  const double n = shifted - kRound;
  const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  const std::uint64_t exponent = (bits_as<std::uint64_t>(shifted) + 1023) << 52;
  return series<0, 1, 15>(r) * bits_as<double>(exponent);
}

/// sin and cos of an angle, |angle| < 2^30.
FSDP_HOST_DEVICE inline void sin_cos(double angle, double& sin_out, double& cos_out) {
  // angle = n π/2 + r with |r| <= π/4. π/2 in three parts: fused, each product is exact.
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  const double shifted = std::fma(angle, kTwoOverPi, kRound);
  const double n = shifted - kRound;
  double r = std::fma(-n, 0x1.921fb54442d18p+0, angle);
  r = std::fma(-n, 0x1.1a62633145c07p-54, r);
  r = std::fma(-n, -0x1.f1976b7ed8fbcp-110, r);
  const double square = r * r;
  const double sin = std::fma(r * square, -series<3, 2, 9>(-square), r);
  const double cos = std::fma(square, -series<2, 2, 9>(-square), 1.0);
  // A quarter turn: (sin, cos) become (cos, -sin).
  const std::uint64_t quarter = bits_as<std::uint64_t>(shifted) & 3;
  const bool is_swapped = (quarter & 1) != 0;
  const double s = is_swapped ? cos : sin, c = is_swapped ? sin : cos;
  sin_out = quarter >= 2 ? -s : s;
  cos_out = quarter == 1 || quarter == 2 ? -c : c;
}

FSDP_HOST_DEVICE inline double tanh(double x) {
  const double size = x < 0 ? -x : x;
  if (size < 0.35) {
    const double square = x * x;
    return x * series<1, 2, 9>(square) / series<0, 2, 9>(square);  // sinh over cosh
  }
  const double value = size > 20 ? 1.0 : 1 - 2 / (exp(2 * size) + 1);
  return x < 0 ? -value : value;
}

}  // namespace fsdp::fixed::formulas
