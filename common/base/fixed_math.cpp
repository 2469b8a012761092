#include "base/fixed_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace fsdp::fixed {
namespace {

/// 1/First! + x/(First + Step)! + x²/(First + 2 Step)! + …, Terms terms.
template <int First, int Step, int Terms>
double series(double x) {
  static constexpr std::array<double, Terms> kCoefficients = [] {
    std::array<double, Terms> coefficients{};
    double factorial = 1;
    for (int n = 1, i = 0; i < Terms; ++n) {
      if (n - 1 == First + i * Step) coefficients[static_cast<std::size_t>(i++)] = 1 / factorial;
      factorial *= n;
    }
    return coefficients;
  }();
  double value = kCoefficients.back();
  for (std::size_t i = Terms - 1; i-- > 0;) value = std::fma(value, x, kCoefficients[i]);
  return value;
}

// ln 2 in two parts: the first times any exponent is exact.
constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
/// Adding it rounds to an integer, which then stands in the low bits.
constexpr double kRound = 0x1.8p52;

}  // namespace

double log(double x) {
  // x = m 2^e with m in [√½, √2), and ln m = 2 artanh((m - 1) / (m + 1)).
  auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;  // √½
  bits -= kRootHalf;
  const auto exponent = static_cast<double>(static_cast<std::int64_t>(bits) >> 52);
  const auto mantissa = std::bit_cast<double>((bits & 0x000fffffffffffffu) + kRootHalf);
  const double t = (mantissa - 1) / (mantissa + 1);  // |t| <= 0.1716
  const double square = t * t;
  double sum = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * kLn2High + (exponent * kLn2Low + (2 * t + 2 * t * (square * sum)));
}

double exp(double x) {
  if (x < -708) return 0;
  if (x > 709) return std::numeric_limits<double>::infinity();
  if (std::isnan(x)) return x;
  // x = n ln 2 + r with |r| <= ln 2 / 2.
  constexpr double kLog2e = 0x1.71547652b82fep0;
  const double shifted = std::fma(x, kLog2e, kRound);
  const double n = shifted - kRound;
  const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  const std::uint64_t exponent = (std::bit_cast<std::uint64_t>(shifted) + 1023) << 52;
  return series<0, 1, 15>(r) * std::bit_cast<double>(exponent);
}

SinCos sin_cos(double angle) {
  // angle = n π/2 + r with |r| <= π/4. π/2 in three parts: fused, each product is exact.
  constexpr double kPi2[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  const double shifted = std::fma(angle, kTwoOverPi, kRound);
  const double n = shifted - kRound;
  double r = angle;
  for (const double part : kPi2) r = std::fma(-n, part, r);
  const double square = r * r;
  const double sin = std::fma(r * square, -series<3, 2, 9>(-square), r);
  const double cos = std::fma(square, -series<2, 2, 9>(-square), 1.0);
  switch (std::bit_cast<std::uint64_t>(shifted) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

double tanh(double x) {
  const double size = x < 0 ? -x : x;
  if (size < 0.35) {
    const double square = x * x;
    return x * series<1, 2, 9>(square) / series<0, 2, 9>(square);  // sinh over cosh
  }
  const double value = size > 20 ? 1.0 : 1 - 2 / (exp(2 * size) + 1);
  return x < 0 ? -value : value;
}

}  // namespace fsdp::fixed
