// Elementary functions: right to a few units in the last place, and the same bits everywhere.
#include "base/fixed_math.h"

#include "base/philox.h"
#include "support/catch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

namespace fsdp {
namespace {

/// Number i of 100,000, spread over (low, high).
double spread(std::uint64_t i, double low, double high) {
  return low + (high - low) * (static_cast<double>(random_word(5, i)) + 0.5) * 0x1p-32;
}

constexpr std::uint64_t kCount = 100'000;

/// The largest of error(i).
double largest(const std::function<double(std::uint64_t)>& error) {
  double worst = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) worst = std::max(worst, error(i));
  return worst;
}

double relative(double value, double expected) { return std::abs(value / expected - 1); }

/// Of the bits of all values, in order.
std::uint64_t checksum(const std::function<double(std::uint64_t)>& value) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    sum = sum * 6364136223846793005u + std::bit_cast<std::uint64_t>(value(i));
  }
  return sum;
}

}  // namespace

TEST_CASE("fixed functions agree with the library's to a few units in the last place") {
  const auto wide = [](std::uint64_t i) { return std::exp(spread(i, -600, 600)); };
  CHECK(largest([&](auto i) { return relative(fixed::log(wide(i)), std::log(wide(i))); }) < 5e-16);
  CHECK(largest([](auto i) {
          const double x = spread(i, -708, 709);
          return relative(fixed::exp(x), std::exp(x));
        }) < 3e-16);
  CHECK(largest([](auto i) {
          const double base = spread(i, 0, 2), exponent = spread(i + kCount, -100, 100);
          const double expected = std::pow(base, exponent);
          if (expected < 1e-300) return 0.0;
          return relative(fixed::pow(base, exponent), expected) /
                 (1 + std::abs(std::log(expected)));
        }) < 5e-16);
  for (const double end : {4.0, 1e3, 1e9}) {
    CHECK(largest([=](auto i) {
            const double angle = spread(i, -end, end);
            const auto [sin, cos] = fixed::sin_cos(angle);
            return std::max(std::abs(sin - std::sin(angle)), std::abs(cos - std::cos(angle)));
          }) < 3e-16);
  }
  for (const double end : {1e-3, 1.0, 30.0}) {
    CHECK(largest([=](auto i) {
            const double x = spread(i, -end, end);
            return relative(fixed::tanh(x), std::tanh(x));
          }) < 1e-15);
  }
}

TEST_CASE("fixed functions are exact where they can be, and end well") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CHECK(fixed::log(1) == 0);
  CHECK(fixed::exp(0) == 1);
  CHECK(fixed::exp(-709) == 0);
  CHECK(fixed::exp(-kInfinity) == 0);
  CHECK(fixed::exp(710) == kInfinity);
  CHECK(std::isnan(fixed::exp(NAN)));
  CHECK(fixed::pow(3, 0) == 1);
  CHECK(fixed::sin_cos(0).sin == 0);
  CHECK(fixed::sin_cos(0).cos == 1);
  CHECK(std::isnan(fixed::sin_cos(kInfinity).sin));
  CHECK(fixed::tanh(0) == 0);
  CHECK(fixed::tanh(-kInfinity) == -1);
  CHECK(std::isnan(fixed::tanh(NAN)));
}

TEST_CASE("fixed functions have the same bits on every machine") {
  const auto positive = [](std::uint64_t i) {
    return std::ldexp(spread(i, 1, 2), static_cast<int>(i % 99) - 49);
  };
  CHECK(checksum([&](auto i) { return fixed::log(positive(i)); }) == 0x9f6d1c0a7132a0bfu);
  CHECK(checksum([](auto i) { return fixed::exp(spread(i, -30, 30)); }) == 0x611eb941c2325064u);
  CHECK(checksum([](auto i) { return fixed::pow(spread(i, 0, 2), spread(i + 9, -9, 9)); }) ==
        0xe1fd7ab74b02ef11u);
  CHECK(checksum([](auto i) { return fixed::sin_cos(spread(i, -4e3, 4e3)).sin; }) ==
        0x969f720edc1604e3u);
  CHECK(checksum([](auto i) { return fixed::sin_cos(spread(i, -4e3, 4e3)).cos; }) ==
        0x02cbc36c2f005c6au);
  CHECK(checksum([](auto i) { return fixed::tanh(spread(i, -4, 4)); }) == 0xb071c29deaf862e1u);
}

}  // namespace fsdp
