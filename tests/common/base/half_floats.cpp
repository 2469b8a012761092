// Rounding to 16-bit floats against its definition: the nearest one, and the even one of two.
#include "base/half_floats.h"

#include "support/catch.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace fsdp;

namespace {

template <class H>
constexpr int kFractionBits = std::is_same_v<H, BFloat16> ? 7 : 10;

// The value by IEEE 754's definition. What follows the largest finite number counts as the number
// that would follow it with more exponents: where rounding to infinity begins.
template <class H>
double value_of(int bits) {
  constexpr int kBits = kFractionBits<H>;
  const int bias = (1 << (14 - kBits)) - 1;
  const int exponent = (bits & 0x7FFF) >> kBits, fraction = bits & ((1 << kBits) - 1);
  const int whole = exponent == 0 ? fraction : fraction + (1 << kBits);
  const double magnitude = std::ldexp(whole, std::max(exponent, 1) - bias - kBits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class H>
int infinity_of() {
  return 0x7FFF >> kFractionBits<H> << kFractionBits<H>;
}

template <class H, class From>
void check_around_every_number() {
  std::vector<std::string> wrong;
  const auto check = [&](From value, int expected) {
    if (H(value).bits == expected) return;
    wrong.push_back(std::to_string(value) + " gave " + std::to_string(H(value).bits) + ", not " +
                    std::to_string(expected));
  };
  const From infinity = std::numeric_limits<From>::infinity();
  for (const int sign : {0, 0x8000}) {
    for (int bits = 0; bits < infinity_of<H>(); ++bits) {
      const int here = sign | bits, next = here + 1;
      const auto exact = static_cast<From>(value_of<H>(here));
      const auto middle = static_cast<From>((value_of<H>(here) + value_of<H>(next)) / 2);
      check(exact, here);
      check(middle, bits % 2 == 0 ? here : next);
      check(std::nextafter(middle, From{0}), here);
      check(std::nextafter(middle, sign == 0 ? infinity : -infinity), next);
    }
    check(sign == 0 ? infinity : -infinity, sign | infinity_of<H>());
    check(sign == 0 ? std::numeric_limits<From>::max() : std::numeric_limits<From>::lowest(),
          sign | infinity_of<H>());
    check(std::copysign(std::numeric_limits<From>::denorm_min(), sign == 0 ? From{1} : From{-1}),
          sign);
  }
  CHECK(wrong == std::vector<std::string>{});
}

template <class H>
void check_not_a_number() {
  for (const std::uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFBFFFFFU}) {
    const H half(std::bit_cast<float>(bits));
    CHECK(std::isnan(static_cast<float>(half)));
    CHECK((half.bits >> 15) == static_cast<int>(bits >> 31));
  }
  CHECK(std::isnan(static_cast<float>(H(std::numeric_limits<double>::quiet_NaN()))));
}

template <class H>
void check_widening() {
  std::vector<int> wrong;
  for (int i = 0; i < 0x10000; ++i) {
    H half;
    half.bits = static_cast<std::uint16_t>(i);
    const auto wide = static_cast<float>(half);
    const int magnitude = i & 0x7FFF;
    const bool is_right = magnitude > infinity_of<H>() ? std::isnan(wide)
                          : magnitude == infinity_of<H>()
                              ? std::isinf(wide)
                              : static_cast<double>(wide) == value_of<H>(i);
    if (!is_right || std::signbit(wide) != (i >= 0x8000)) wrong.push_back(i);
  }
  CHECK(wrong == std::vector<int>{});
}

}  // namespace

TEST_CASE("a float32 is rounded to the nearest 16-bit float, ties to even") {
  check_around_every_number<BFloat16, float>();
  check_around_every_number<Float16, float>();
}

TEST_CASE("a float64 is rounded to a 16-bit float once") {
  check_around_every_number<BFloat16, double>();
  check_around_every_number<Float16, double>();
}

TEST_CASE("what is not a number stays so, with its sign") {
  check_not_a_number<BFloat16>();
  check_not_a_number<Float16>();
}

TEST_CASE("every 16-bit float becomes the float32 of the same value") {
  check_widening<BFloat16>();
  check_widening<Float16>();
}
