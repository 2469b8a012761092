#include "tensor/exact_norm.h"

#include "kernel_checks.h"

#include <algorithm>
#include <bit>
#include <limits>

using namespace fsdp;
using namespace kernel_checks;

namespace {

double square_sum(const std::vector<float>& values, std::int64_t pieces = 1) {
  ExactSquareSum sum;
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor t = Tensor::from(values, {count});
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t begin = count * i / pieces, end = count * (i + 1) / pieces;
    sum.add(t.narrow(0, begin, end - begin));
  }
  return sum.value();
}

/// Any finite float, all exponents alike.
std::vector<float> wild_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values;
  for (std::uint64_t i = 0; values.size() < static_cast<std::size_t>(count); ++i) {
    const float x = std::bit_cast<float>(random_word(seed, i));
    if (std::isfinite(x)) values.push_back(x);
  }
  return values;
}

__extension__ using Quad = unsigned __int128;

}  // namespace

TEST_CASE("sums of squares of whole numbers are exact") {
  std::vector<float> values;
  Quad expected = 0;
  for (std::uint64_t i = 0; i < 200001; ++i) {
    const std::uint32_t n = random_word(3, i) >> 8;  // 24 bits: a float holds it
    values.push_back(static_cast<float>(n));
    expected += static_cast<Quad>(n) * n;
  }
  CHECK(square_sum(values) == static_cast<double>(expected));
  for (float& value : values) value = std::ldexp(-value, -150);  // many of them subnormal
  double small = 0;
  // Subnormal rounding loses bits of the values, so the sum is taken of what is left.
  Quad units = 0;
  for (const float value : values) {
    const auto n = static_cast<std::uint64_t>(std::ldexp(-static_cast<double>(value), 149));
    units += static_cast<Quad>(n) * n;
  }
  small = std::ldexp(static_cast<double>(units), -298);
  CHECK(square_sum(values) == small);
}

TEST_CASE("no order, no cut and no number of threads changes the sum") {
  std::vector<float> values = wild_values(150000, 4);
  const double expected = square_sum(values);
  CHECK(std::isfinite(expected));
  for (const std::int64_t pieces : {2, 3, 17}) CHECK(square_sum(values, pieces) == expected);
  std::reverse(values.begin(), values.end());
  CHECK(square_sum(values) == expected);
  std::sort(values.begin(), values.end());
  CHECK(square_sum(values) == expected);
  for (const int threads : {2, 3}) {
    Context context({.threads = threads});
    const ContextScope scope(context);
    CHECK(square_sum(values, 5) == expected);
  }
}

TEST_CASE("the sum is rounded once, to nearest even") {
  const auto power = [](int n) { return std::ldexp(1.0f, n); };
  CHECK(square_sum({}) == 0);
  CHECK(square_sum({0.0f, -0.0f}) == 0);
  CHECK(square_sum({3, 4}) == 25);
  // 2^54 + 1: half a unit more than even; with 2^-40 on top, more than half.
  CHECK(square_sum({power(27), 1, 1}) == std::ldexp(1.0, 54));
  CHECK(square_sum({power(27), 1, 1, power(-20)}) == std::ldexp(1.0, 54) + 4);
  CHECK(square_sum({std::numeric_limits<float>::denorm_min()}) == std::ldexp(1.0, -298));
  const float largest = std::numeric_limits<float>::max();
  CHECK(square_sum({largest}) == static_cast<double>(largest) * static_cast<double>(largest));
  CHECK(square_sum({largest, std::numeric_limits<float>::denorm_min()}) ==
        static_cast<double>(largest) * static_cast<double>(largest));
}

TEST_CASE("infinities and NaNs are told apart") {
  CHECK(square_sum({1, -INFINITY, 2}) == INFINITY);
  CHECK(std::isnan(square_sum({1, INFINITY, NAN})));
  CHECK(std::isnan(square_sum({1, -NAN})));
}

TEST_CASE("with a factor, squares are those of what scale() makes of the values") {
  std::vector<float> values = wild_values(5003, 7);
  for (std::uint64_t i = 0; i < 2500; ++i)
    values[i] = std::ldexp(values[i] < 0 ? -1.0F : 3.0F, -140);
  const Tensor given = Tensor::from(values, {5003}), scaled = Tensor::empty({5003});
  for (const double factor : {1.0 / 3, 0x1p-20, 0.75}) {
    ops::copy(scaled, given);
    ops::scale(scaled, factor);
    ExactSquareSum of_scaled, of_given(factor);
    of_scaled.add(scaled);
    of_given.add(given);
    CHECK(of_given.value() == of_scaled.value());
    CHECK(given.to_vector<float>() == values);
  }
  ExactSquareSum overflow(2);
  overflow.add(Tensor::from(std::vector<float>{1, std::numeric_limits<float>::max()}, {2}));
  CHECK(overflow.value() == INFINITY);
}

TEST_CASE("counters of several ranks add up") {
  const std::vector<float> a = wild_values(1000, 5), b = wild_values(999, 6);
  ExactSquareSum left, right;
  left.add(Tensor::from(a, {1000}));
  right.add(Tensor::from(b, {999}));
  CHECK(left.counters().shape() == Shape{ExactSquareSum::kCounters});
  for (std::int64_t i = 0; i < ExactSquareSum::kCounters; ++i) {
    left.counters().data<std::int64_t>()[i] += right.counters().data<std::int64_t>()[i];
  }
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  CHECK(left.value() == square_sum(both));
  CHECK_THROWS_AS(left.add(Tensor::zeros({3}, DType::float64)), Error);
}
