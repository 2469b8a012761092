// The gradients of one step in one process, and the clip.
#include "optim/local_gradients.h"

#include "autograd/functions.h"
#include "base/philox.h"
#include "support/catch.h"

#include <cmath>
#include <limits>

namespace fsdp::optim {

namespace {

using Floats = std::vector<float>;

Variable leaf(const Floats& values) {
  return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}), true);
}
/// A backward that leaves exactly `grad` in x.
void backward_with(const Variable& x, const Floats& grad) {
  sum(multiply(x, Variable(Tensor::from(grad, x.shape())))).backward();
}
Floats random_floats(std::size_t n, std::uint64_t seed) {
  Floats values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float mantissa = static_cast<float>(random_word(seed, i)) * 0x1p-31F - 1;
    values[i] = std::ldexp(mantissa, static_cast<int>(random_word(seed, i + n) % 8));
  }
  return values;
}
/// The tree as DESIGN defines it: K leaves split at the largest power of two < K.
float tree(const std::vector<Floats>& leaves, std::size_t element, std::size_t begin,
           std::size_t end) {
  if (end - begin == 1) return leaves[begin][element];
  std::size_t split = 1;
  while (2 * split < end - begin) split *= 2;
  return tree(leaves, element, begin, begin + split) + tree(leaves, element, begin + split, end);
}

}  // namespace

TEST_CASE("micro-batches are summed in the canonical tree and scaled once") {
  const int micro_steps = GENERATE(1, 2, 3, 5, 6, 7, 8, 13);
  constexpr std::size_t kSize = 19;
  const Variable x = leaf(Floats(kSize, 1));
  LocalGradients engine({{"x", x}});
  for (int step = 0; step < 2; ++step) {
    std::vector<Floats> leaves;
    engine.begin_step({.micro_steps = micro_steps});
    for (int m = 0; m < micro_steps; ++m) {
      leaves.push_back(random_floats(kSize, static_cast<std::uint64_t>(100 * step + m)));
      backward_with(x, leaves.back());
      engine.end_micro_step();
      CHECK_FALSE(x.grad().is_defined());
    }
    engine.finish_gradients();
    const Floats grad = x.grad().to_vector<float>();
    CHECK(engine.pieces()[0].grad.to_vector<float>() == grad);
    const auto count = static_cast<std::size_t>(micro_steps);
    for (std::size_t i = 0; i < kSize; ++i) {
      CHECK(grad[i] == tree(leaves, i, 0, count) * (1.0F / static_cast<float>(micro_steps)));
    }
    engine.zero_grad();
    CHECK_FALSE(x.grad().is_defined());
    CHECK_FALSE(engine.pieces()[0].grad.is_defined());
  }
}

TEST_CASE("the scale of a loss changes no bit of a gradient in range") {
  const int micro_steps = GENERATE(1, 4);
  const Variable x = leaf(random_floats(19, 1)), y = leaf(random_floats(19, 2));
  LocalGradients engine({{"x", x}});
  std::vector<Floats> grads;
  for (const double scale : {1.0, 65536.0, 0.125}) {
    engine.begin_step({.micro_steps = micro_steps, .loss_scale = scale});
    for (int m = 0; m < micro_steps; ++m) {
      sum(multiply(tanh(x), y)).backward(scale);
      engine.end_micro_step();
    }
    engine.finish_gradients();
    grads.push_back(x.grad().to_vector<float>());
  }
  CHECK(grads[1] == grads[0]);
  CHECK(grads[2] == grads[0]);
}

TEST_CASE("a parameter without a gradient gets +0, a frozen one nothing") {
  const Variable used = leaf({1, 2}), unused = leaf({3}), sometimes = leaf({4});
  Variable frozen = leaf({5});
  frozen.set_requires_grad(false);
  LocalGradients engine(
      {{"used", used}, {"unused", unused}, {"frozen", frozen}, {"sometimes", sometimes}});
  CHECK(engine.pieces().size() == 3);
  engine.begin_step({.micro_steps = 2});
  backward_with(used, {1, 1});
  engine.end_micro_step();
  backward_with(used, {3, 3});
  backward_with(sometimes, {8});
  engine.end_micro_step();
  engine.finish_gradients();
  CHECK(used.grad().to_vector<float>() == Floats{2, 2});
  CHECK(unused.grad().to_vector<float>() == Floats{0});
  CHECK_FALSE(std::signbit(unused.grad().to_vector<float>()[0]));
  CHECK(sometimes.grad().to_vector<float>() == Floats{4});
  CHECK_FALSE(frozen.grad().is_defined());
}

TEST_CASE("gradients cost one set, plus one for every level of the tree, and are freed") {
  Context context;
  const ContextScope scope(context);
  const Variable x = leaf(Floats(100, 1));
  LocalGradients engine({{"x", x}});
  const auto grads = [&] { return context.tracker().current()[MemoryKind::unsharded_grad] / 400; };
  engine.begin_step({.micro_steps = 8});
  std::vector<std::int64_t> alive;
  for (int m = 0; m < 8; ++m) {
    backward_with(x, Floats(100, 1));
    engine.end_micro_step();
    alive.push_back(grads());
  }
  CHECK(alive == std::vector<std::int64_t>{1, 1, 2, 1, 2, 2, 3, 1});  // popcount(m)
  engine.finish_gradients();
  CHECK(grads() == 1);
  engine.zero_grad();
  CHECK(grads() == 0);
}

TEST_CASE("steps that are not gone through as planned are refused") {
  const Variable x = leaf({1});
  LocalGradients engine({{"x", x}});
  CHECK_THROWS_AS(engine.finish_gradients(), Error);
  CHECK_THROWS_AS(engine.end_micro_step(), Error);
  CHECK_THROWS_AS(engine.begin_step({.micro_steps = 4, .micro_steps_per_reduction = 3}), Error);
  CHECK_THROWS_AS(engine.begin_step({.micro_steps = 0}), Error);
  engine.begin_step({.micro_steps = 2});
  engine.end_micro_step();
  CHECK(message_of<Error>([&] { engine.finish_gradients(); }).find("1 of 2") != std::string::npos);
  engine.end_micro_step();
  CHECK_THROWS_AS(engine.end_micro_step(), Error);
  engine.begin_step({.micro_steps = 1});  // forgets what was there
  backward_with(x, {3});
  engine.end_micro_step();
  engine.finish_gradients();
  CHECK(x.grad().item() == 3);
}

TEST_CASE("the map of micro-batches visits every one once, in runs of L") {
  for (const auto& [w, m, l] :
       {std::tuple{1, 8, 1}, {2, 4, 1}, {2, 4, 2}, {2, 4, 4}, {4, 2, 2}, {3, 6, 3}}) {
    const StepPlan plan{.micro_steps = m, .micro_steps_per_reduction = l};
    std::vector<int> visits(static_cast<std::size_t>(w * m));
    for (int r = 0; r < w; ++r) {
      for (int i = 0; i < m; ++i) ++visits.at(static_cast<std::size_t>(plan.micro_batch(i, r, w)));
    }
    CHECK(visits == std::vector<int>(visits.size(), 1));
  }
  const StepPlan plan{.micro_steps = 4, .micro_steps_per_reduction = 2};
  CHECK(plan.micro_batch(0, 1, 2) == 2);
  CHECK(plan.micro_batch(1, 1, 2) == 3);
  CHECK(plan.micro_batch(2, 0, 2) == 4);
}

TEST_CASE("the norm is exact and the clip scales to it") {
  const Variable x = leaf({1, 1}), y = leaf({1});
  LocalGradients engine({{"x", x}, {"y", y}});
  const auto prepare = [&](Floats dx, Floats dy) {
    engine.begin_step({.micro_steps = 1});
    backward_with(x, dx);
    backward_with(y, dy);
    engine.end_micro_step();
    engine.finish_gradients();
  };
  prepare({2, 3}, {6});
  CHECK(global_grad_norm(engine, nullptr) == 7);
  CHECK(clip_by_global_norm(engine, nullptr, 8) == 7);
  CHECK(y.grad().item() == 6);
  CHECK(clip_by_global_norm(engine, nullptr, 3.5) == 7);
  CHECK(y.grad().item() == 6 * static_cast<float>(3.5 / (7 + 1e-6)));
  CHECK(std::abs(global_grad_norm(engine, nullptr) - 3.5) < 1e-5);

  prepare({0, 0}, {0});
  CHECK(clip_by_global_norm(engine, nullptr, 1) == 0);
  prepare({1e30F, 0}, {1e30F});
  CHECK(std::abs(clip_by_global_norm(engine, nullptr, 1) / (std::sqrt(2.0) * 1e30) - 1) < 1e-6);
  const float bad =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  prepare({1, bad}, {1});
  CHECK_THROWS_AS(clip_by_global_norm(engine, nullptr, 1), Error);
  CHECK_THROWS_AS(clip_by_global_norm(engine, nullptr, 0), Error);
}

}  // namespace fsdp::optim
