#include "tensor/init.h"

#include "kernel_checks.h"
#include "tensor/normal_quantile.h"

using namespace fsdp;
using namespace kernel_checks;

namespace {

/// FNV-1a of the bytes: what a golden value is compared with.
std::uint64_t hash_of(const Tensor& t) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < t.nbytes(); ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(t.raw()[i])) * 0x100000001b3u;
  }
  return hash;
}

Tensor initialized(const InitSpec& spec, std::int64_t count, DType dtype = DType::float32) {
  const Tensor t = Tensor::empty({count}, dtype);
  init_slice(t, spec, 42, 1000, 0);
  return t;
}

}  // namespace

TEST_CASE("any slice of a parameter is the slice of the whole") {
  const std::int64_t count = 40003;
  for (const auto& spec : {InitSpec::truncated_normal(0.02), InitSpec::uniform(-2, 3),
                           InitSpec::ones(), InitSpec::zeros()}) {
    for (const DType dtype : kFloating) {
      const Tensor whole = initialized(spec, count, dtype);
      run_everywhere([&](const Placement& at) {
        const Tensor t = at.empty({count}, dtype);
        init_slice(t, spec, 42, 1000, 0);
        CHECK(doubles_of(t) == doubles_of(whole));
        return std::vector{t};
      });
      for (const auto& [begin, length] :
           {std::pair{0, 1}, {1, 2}, {7, 16390}, {40000, 3}, {5, 0}}) {
        const Tensor slice = Tensor::empty({length}, dtype);
        init_slice(slice, spec, 42, 1000, begin);
        CHECK(ops::equal_bits(slice, whole.narrow(0, begin, length)));
      }
    }
  }
}

TEST_CASE("a range of zeros is zero in any slice, and changes nothing beside it") {
  const std::int64_t count = 2003;
  InitSpec zeroed = InitSpec::truncated_normal(0.02);
  const Tensor drawn = initialized(zeroed, count);
  zeroed.zero_begin = 100;
  zeroed.zero_end = 117;
  std::vector<float> expected = drawn.to_vector<float>();
  std::fill(expected.begin() + 100, expected.begin() + 117, 0.0F);
  run_everywhere([&](const Placement& at) {
    const Tensor t = at.empty({count}, DType::float32);
    init_slice(t, zeroed, 42, 1000, 0);
    CHECK(doubles_of(t) == std::vector<double>(expected.begin(), expected.end()));
    return std::vector{t};
  });
  for (const auto& [begin, length] : {std::pair{0, 2003},
                                      {0, 100},
                                      {90, 20},
                                      {103, 5},
                                      {110, 60},
                                      {100, 17},
                                      {117, 9},
                                      {2000, 3},
                                      {105, 0}}) {
    INFO(begin << " + " << length);
    const Tensor slice = Tensor::empty({length});
    init_slice(slice, zeroed, 42, 1000, begin);
    CHECK(slice.to_vector<float>() ==
          std::vector<float>(expected.begin() + begin, expected.begin() + begin + length));
  }
  const Tensor table = Tensor::empty({59, 17});  // as a whole parameter is initialized
  zeroed.zero_begin = 3 * 17;
  zeroed.zero_end = 4 * 17;
  init_slice(table, zeroed, 42, 1000, 0);
  CHECK(table.narrow(0, 3, 1).to_vector<float>() == std::vector<float>(17, 0.0F));
  CHECK(ops::equal_bits(table.narrow(0, 4, 55).view({55 * 17}), drawn.narrow(0, 4 * 17, 55 * 17)));
}

TEST_CASE("initial values are the same bits from every compiler") {
  CHECK(hash_of(initialized(InitSpec::truncated_normal(0.02), 100000)) == 0x32cefb77c24ac8d8u);
  CHECK(hash_of(initialized(InitSpec::truncated_normal(1, 6), 100000, DType::float64)) ==
        0x0a96003cc81186feu);
  CHECK(hash_of(initialized(InitSpec::uniform(-1, 1), 100000)) == 0xae72672aa898101bu);
}

TEST_CASE("the quantile inverts the distribution function to 1e-9 and better") {
  for (double z = -6; z <= 6; z += 0.01) {
    const double below = 0.5 * std::erfc(-z / std::sqrt(2.0));
    const double centered = 0.5 * std::erf(z / std::sqrt(2.0));
    if (std::abs(centered) > 0.4999) continue;  // where the argument itself loses digits
    INFO("z " << z << " p " << below);
    CHECK(std::abs(normal_quantile(centered) - z) <= 1e-11 * std::max(std::abs(z), 1.0));
    CHECK(normal_quantile(-centered) == -normal_quantile(centered));
  }
  for (const double cut : {0.5, 1.0, 2.0, 3.0, 4.0}) {
    CHECK(std::abs(normal_mass_within(cut) - 0.5 * std::erf(cut / std::sqrt(2.0))) < 1e-15);
  }
}

TEST_CASE("truncated normal values have the moments they should and keep within the cut") {
  const std::int64_t count = 200000;
  const double cut = GENERATE(2.0, 3.0);
  const std::vector<float> values =
      initialized(InitSpec::truncated_normal(0.5, cut), count).to_vector<float>();
  double mean = 0, square = 0, largest = 0;
  for (const float value : values) {
    const auto x = static_cast<double>(value);
    mean += x / static_cast<double>(count);
    square += x * x / static_cast<double>(count);
    largest = std::max(largest, std::abs(x));
  }
  const double density = std::exp(-cut * cut / 2) / std::sqrt(2 * 3.14159265358979323846);
  const double variance = 1 - 2 * cut * density / std::erf(cut / std::sqrt(2.0));
  CHECK(std::abs(mean) < 0.005);
  CHECK(std::abs(square - 0.25 * variance) < 0.003);
  CHECK(largest <= 0.5 * cut);
  CHECK(largest > 0.45 * cut);
}

TEST_CASE("a specification that cannot be drawn is refused") {
  const Tensor t = Tensor::empty({4});
  CHECK_THROWS_AS(init_slice(t, InitSpec::truncated_normal(1, 0), 0, 0, 0), Error);
  CHECK_THROWS_AS(init_slice(t, InitSpec::truncated_normal(1, 7), 0, 0, 0), Error);
  CHECK_THROWS_AS(init_slice(t, InitSpec::ones(), 0, 0, -1), Error);
}
