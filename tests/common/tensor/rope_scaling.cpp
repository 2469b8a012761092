// The rotary frequencies of Llama 3.1, against numbers that were computed elsewhere.
#include "tensor/ops.h"

#include "support/catch.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace fsdp {
namespace {

constexpr RopeScaling kLlama31{.factor = 8,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 8192};
constexpr double kTheta = 500000;
constexpr std::int64_t kPairs = 64;

struct Tables {
  std::vector<double> cos, sin;
};

Tables tables(std::int64_t positions, const RopeScaling& scaling) {
  const Tensor cos = Tensor::empty({positions, kPairs}, DType::float64);
  const Tensor sin = Tensor::empty({positions, kPairs}, DType::float64);
  ops::rope_tables(cos, sin, kTheta, scaling);
  return {cos.to_vector<double>(), sin.to_vector<double>()};
}

// No frequency is more than one radian per position.
std::vector<double> frequencies(const RopeScaling& scaling) {
  const Tables all = tables(2, scaling);
  std::vector<double> found;
  for (std::size_t i = kPairs; i < 2 * kPairs; ++i) {
    found.push_back(std::atan2(all.sin[i], all.cos[i]));
  }
  return found;
}

}  // namespace

// Llama-3.1-8B: head width 128, so f = 500000^(-i/64) for pair i, with the wavelength w = 2π / f.
// Longer than 8192 / 1: f / 8. Shorter than 8192 / 4: f. Otherwise (1 - s) f / 8 + s f, with
// s = (8192 / w - 1) / (4 - 1). These were computed by that formula in double precision, in Python;
// transformers computes the same to float32.
TEST_CASE("rotary frequencies are scaled like those of Llama 3.1", "[rope]") {
  const std::vector<double> found = frequencies(kLlama31);
  const std::vector<double> plain = frequencies({});
  struct {
    std::size_t pair;
    double frequency;
  } const expected[] = {{0, 1.0},
                        {1, 0.8146172338565447},
                        {20, 0.016560440080994446},
                        {28, 0.003211445994752591},
                        {29, 0.002166570763503359},
                        {30, 0.0013718935677611381},
                        {31, 0.0008567514129196321},
                        {32, 0.0005248461609929547},
                        {33, 0.00031269375038406517},
                        {34, 0.0001785078127679964},
                        {35, 9.556212353964683e-05},
                        {36, 7.78465527393245e-05},
                        {50, 4.411534674558404e-06},
                        {63, 3.068925988914511e-07}};
  for (const auto& [pair, frequency] : expected) {
    INFO(pair);
    CHECK(std::abs(found[pair] / frequency - 1) < 1e-14);
  }
  int whole = 0, between = 0, divided = 0;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double f = std::pow(kTheta, -static_cast<double>(i) / kPairs);
    const double wavelength = 2 * std::numbers::pi / f;
    CHECK(std::abs(plain[i] / f - 1) < 1e-14);
    if (wavelength < 2048) {
      ++whole;
      CHECK(found[i] == plain[i]);
    } else if (wavelength > 8192) {
      ++divided;
      CHECK(std::abs(found[i] * 8 / f - 1) < 1e-14);
    } else {
      ++between;
      const double s = (8192 / wavelength - 1) / 3;
      CHECK(std::abs(found[i] / ((1 - s) * f / 8 + s * f) - 1) < 1e-14);
    }
  }
  CHECK(whole == 29);
  CHECK(between == 6);
  CHECK(divided == 29);
}

TEST_CASE("without scaling the tables are what they were", "[rope]") {
  const Tensor cos = Tensor::empty({50, kPairs}, DType::float64);
  const Tensor sin = Tensor::empty({50, kPairs}, DType::float64);
  ops::rope_tables(cos, sin, kTheta);
  const RopeScaling off{.factor = 0, .low_freq_factor = 3, .original_max_position_embeddings = 5};
  CHECK(tables(50, off).cos == cos.to_vector<double>());
  CHECK(tables(50, off).sin == sin.to_vector<double>());
  CHECK(tables(50, kLlama31).cos != cos.to_vector<double>());
}

}  // namespace fsdp
