#include "kernel_checks.h"

#include "tensor/simd.h"

using namespace fsdp;
using namespace kernel_checks;

TEST_CASE("cross-entropy and its gradient, over any width, in place too") {
  const std::int64_t rows = GENERATE(1, 41), width = GENERATE(1, 31, 256, 5003);
  const double dloss = 1.75;
  const auto logits = random_values(rows * width, 1, -6, 6);
  std::vector<std::int32_t> targets;
  std::vector<double> losses, dlogits;
  double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    targets.push_back(static_cast<std::int32_t>((r * 7919 + width - 1) % width));
    const double* row = logits.data() + r * width;
    double total = 0;
    for (std::int64_t j = 0; j < width; ++j) total += std::exp(row[j]);
    losses.push_back(std::log(total) - row[targets.back()]);
    loss += losses.back() / static_cast<double>(rows);
    for (std::int64_t j = 0; j < width; ++j) {
      const double p = std::exp(row[j]) / total - (j == targets.back() ? 1 : 0);
      dlogits.push_back(p * dloss / static_cast<double>(rows));
    }
  }
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor x = at.values(logits, {rows, width}, dtype), t = at.indices(targets);
      const auto empty = [&](std::int64_t n) { return at.empty({n}, dtype); };
      const Tensor alone = empty(1), out = empty(1), over = empty(1);
      const Tensor of_rows = empty(rows), dx = at.empty({rows, width}, dtype);
      ops::cross_entropy(alone, empty(rows), x, t);
      ops::cross_entropy(out, of_rows, x, t, dx, dloss);
      ops::cross_entropy(over, empty(rows), x, t, x, dloss);
      return std::vector{out, of_rows, dx, x, alone, over};
    });
    CHECK(std::abs(doubles_of(outputs[0])[0] - loss) <= tolerance(dtype) * (1 + loss));
    CHECK(distance(outputs[1], losses, 1) < tolerance(dtype));
    CHECK(distance(outputs[2], dlogits, 0.1) < 2 * tolerance(dtype));
    CHECK(doubles_of(outputs[3]) == doubles_of(outputs[2]));
    CHECK(ops::equal_bits(outputs[0], outputs[4]));
    CHECK(ops::equal_bits(outputs[0], outputs[5]));
  }
}

TEST_CASE("cross-entropy of huge and of equal logits") {
  const Placement at;
  const Tensor loss = Tensor::zeros({1}), losses = Tensor::zeros({1});
  std::vector<double> huge(5000, -1e30);
  huge[4000] = 1e30;
  const Tensor x = at.values(huge, {1, 5000}, DType::float32), target = at.indices({4000});
  ops::cross_entropy(loss, losses, x, target, x);
  CHECK(loss.item() == 0);
  for (const float value : x.to_vector<float>()) CHECK(std::abs(value) < 1e-37f);
  ops::fill(x, 77);
  ops::cross_entropy(loss, losses, x, target);
  CHECK(std::abs(loss.item() - std::log(5000.0)) < 1e-5);
  ops::fill(x, NAN);
  ops::cross_entropy(loss, losses, x, target);
  CHECK(std::isnan(loss.item()));
}

TEST_CASE("rows whose target is -100 do not count in the loss nor in its gradient") {
  const std::int64_t width = 23;
  const auto all = random_values(5 * width, 1, -6, 6);
  const std::vector<double> kept(all.begin() + width, all.begin() + 4 * width);
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor x = at.values(all, {5, width}, dtype), y = at.values(kept, {3, width}, dtype);
      const Tensor x_targets = at.indices({-100, 3, 22, 0, -100}),
                   y_targets = at.indices({3, 22, 0});
      const Tensor x_loss = at.empty({1}, dtype), y_loss = at.empty({1}, dtype);
      const Tensor x_losses = at.empty({5}, dtype), y_losses = at.empty({3}, dtype);
      ops::cross_entropy(x_loss, x_losses, x, x_targets, x, 1.75);
      ops::cross_entropy(y_loss, y_losses, y, y_targets, y, 1.75);
      return std::vector{x_loss, y_loss, x, y, x_losses, y_losses};
    });
    CHECK(ops::equal_bits(outputs[0], outputs[1]));
    CHECK(ops::equal_bits(outputs[4].narrow(0, 1, 3), outputs[5]));
    CHECK(doubles_of(outputs[4])[0] == 0);
    CHECK(doubles_of(outputs[4])[4] == 0);
    CHECK(ops::equal_bits(outputs[2].narrow(0, 1, 3), outputs[3]));
    for (const std::int64_t row : {0, 4}) {
      CHECK(doubles_of(outputs[2].narrow(0, row, 1)) ==
            std::vector<double>(static_cast<std::size_t>(width), 0));
    }
  }
}

TEST_CASE("a loss without a row that counts is zero, and so is its gradient") {
  const Placement at;
  const Tensor loss = at.empty({1}, DType::float32), losses = at.empty({2}, DType::float32);
  const Tensor x = at.values(random_values(8, 1), {2, 4}, DType::float32);
  ops::cross_entropy(loss, losses, x, at.indices({-100, -100}), x);
  CHECK(loss.item() == 0);
  CHECK(doubles_of(x) == std::vector<double>(8, 0));
}

TEST_CASE("a target outside the vocabulary is named") {
  const Placement at;
  const Tensor loss = Tensor::zeros({1}), losses = Tensor::zeros({2}), x = Tensor::zeros({2, 9});
  CHECK(message_of<Error>([&] {
          ops::cross_entropy(loss, losses, x, at.indices({3, 9}), x);
        }) == "cross_entropy: target 9 at position 1 is outside the vocabulary [0, 9)");
  CHECK(doubles_of(x) == std::vector<double>(18, 0));
  CHECK_THROWS_AS(ops::cross_entropy(loss, losses, x, at.indices({-1, 0})), Error);
  CHECK_THROWS_AS(ops::cross_entropy(loss, losses, x, at.indices({1, 2, 3})), Error);
}

TEST_CASE("our exponential is right to two units in the last place") {
  double worst = 0;
  for (const double x : random_values(20000, 9, -86, 88)) {
    const float got = simd::exp<float>(simd::splat<float>(static_cast<float>(x)))[3];
    worst = std::max(worst, std::abs(static_cast<double>(got) / std::exp(x) - 1));
  }
  CHECK(worst < 2 * 0x1p-23);
  worst = 0;
  for (const double x : random_values(20000, 10, -700, 700)) {
    worst =
        std::max(worst, std::abs(simd::exp<double>(simd::splat<double>(x))[1] / std::exp(x) - 1));
  }
  CHECK(worst < 4 * 0x1p-52);
  CHECK(simd::exp<float>(simd::splat<float>(-100))[0] == 0);
  CHECK(simd::exp<float>(simd::splat<float>(-INFINITY))[0] == 0);
  CHECK(simd::exp<float>(simd::splat<float>(0))[0] == 1);
  CHECK(simd::exp<float>(simd::splat<float>(1000))[0] > 1e38f);
  CHECK(std::isnan(simd::exp<float>(simd::splat<float>(NAN))[0]));
}
