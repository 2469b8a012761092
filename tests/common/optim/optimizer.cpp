#include "optim/optimizer.h"

#include "base/check.h"
#include "device/context.h"
#include "support/catch.h"

#include <cmath>

namespace fsdp::optim {

namespace {

Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
Piece piece(const std::string& key, const std::vector<float>& param,
            const std::vector<float>& grad) {
  return {.key = key, .param = floats(param), .grad = floats(grad), .unit = "unit " + key};
}
std::vector<float> param_of(const Piece& p) { return p.param.to_vector<float>(); }

}  // namespace

TEST_CASE("AdamW against the definition, step by step, in double") {
  const AdamW::Options options{.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.03};
  AdamW optimizer(options);
  std::vector<Piece> pieces{piece("w", {1, -2, 0.5F}, {0, 0, 0})};
  std::vector<double> p{1, -2, 0.5}, m(3), v(3);
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-2 / t;
    std::vector<float> grad;
    for (int i = 0; i < 3; ++i) grad.push_back(static_cast<float>(std::sin(3 * t + i)));
    ops::copy(pieces[0].grad, floats(grad));
    optimizer.step(pieces, lr);
    for (std::size_t i = 0; i < 3; ++i) {
      const double g = grad[i];
      p[i] *= 1 - lr * options.weight_decay;
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(options.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(options.beta2, t));
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + options.eps);
    }
  }
  CHECK(optimizer.steps() == 20);
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(param_of(pieces[0])[i] - p[i]) < 1e-6);
  CHECK(optimizer.state(pieces[0]).size() == 2);
  CHECK(std::abs(optimizer.state(pieces[0]).at("exp_avg").to_vector<float>()[1] - m[1]) < 1e-6);
}

// The first step alone shows neither betas nor decay: m and v are corrected to the gradient, and
// lr·wd = 3e-10 is below what float32 resolves. So ten steps in double.
TEST_CASE("DeepSpeed's golden step shows its betas and its decay after ten steps, in double") {
  const auto train = [](const AdamW::Options& options) {
    AdamW optimizer(options);
    Piece p{.key = "w",
            .param = Tensor::from(std::vector<double>{1, -1}, {2}),
            .grad = Tensor::from(std::vector<double>{0, 0}, {2}),
            .unit = "unit w"};
    std::vector<Piece> pieces{p};
    for (int t = 1; t <= 10; ++t) {
      ops::copy(p.grad, Tensor::from(std::vector<double>{std::sin(t), std::cos(3 * t)}, {2}));
      optimizer.step(pieces, 1e-3);
    }
    return p.param.to_vector<double>();
  };
  const auto by_definition = [](double beta1, double beta2, double decay) {
    std::vector<double> w{1, -1}, m(2), v(2);
    for (int t = 1; t <= 10; ++t) {
      const double grad[] = {std::sin(t), std::cos(3 * t)};
      for (std::size_t i = 0; i < 2; ++i) {
        w[i] *= 1 - 1e-3 * decay;
        m[i] = beta1 * m[i] + (1 - beta1) * grad[i];
        v[i] = beta2 * v[i] + (1 - beta2) * grad[i] * grad[i];
        w[i] -= 1e-3 * m[i] / (1 - std::pow(beta1, t)) /
                (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + 1e-8);
      }
    }
    return w;
  };
  const std::vector<double> golden =
      train({.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 3e-7});
  const auto distance = [&](const std::vector<double>& other) {
    return std::max(std::abs(golden[0] - other[0]), std::abs(golden[1] - other[1]));
  };
  CHECK(distance(by_definition(0.8, 0.999, 3e-7)) < 1e-12);
  CHECK(distance(by_definition(0.9, 0.999, 3e-7)) > 1e-6);
  CHECK(distance(by_definition(0.8, 0.95, 3e-7)) > 1e-6);
  CHECK(distance(by_definition(0.8, 0.999, 0)) > 1e-9);
}

TEST_CASE("DeepSpeed's golden first step: lr 1e-3, betas 0.8 and 0.999, wd 3e-7") {
  AdamW optimizer({.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 3e-7});
  std::vector<Piece> pieces{piece("w", {1, -1}, {0.5F, 0.25F})};
  optimizer.step(pieces, 1e-3);
  CHECK(param_of(pieces[0]) == std::vector<float>{0.999F, -1.001F});
}

TEST_CASE("pieces without decay are not decayed") {
  AdamW adamw({.weight_decay = 0.5});
  Sgd sgd({.weight_decay = 0.5});
  for (Optimizer* optimizer : std::initializer_list<Optimizer*>{&adamw, &sgd}) {
    std::vector<Piece> pieces{piece("norm", {2}, {0}), piece("w", {2}, {0})};
    pieces[0].decay = false;
    optimizer->step(pieces, 0.1);
    CHECK(param_of(pieces[0])[0] == 2);
    CHECK(param_of(pieces[1])[0] == 1.9F);
  }
}

TEST_CASE("SGD: plain and with momentum") {
  Sgd plain({});
  CHECK(plain.state_names().empty());
  std::vector<Piece> pieces{piece("w", {1, 2}, {1, -1})};
  plain.step(pieces, 0.5);
  CHECK(param_of(pieces[0]) == std::vector<float>{0.5F, 2.5F});

  Sgd momentum({.momentum = 0.5});
  CHECK(momentum.state_names() == std::vector<std::string>{"momentum_buffer"});
  pieces = {piece("w", {0, 0}, {1, 2})};
  momentum.step(pieces, 1);  // buffer 1, 2
  momentum.step(pieces, 1);  // buffer 1.5, 3
  CHECK(param_of(pieces[0]) == std::vector<float>{-2.5F, -5});
}

TEST_CASE("factors for the gradients count for the next step alone") {
  Sgd optimizer({});
  std::vector<Piece> pieces{piece("w", {0, 0}, {1, 2}), piece("v", {0}, {4})};
  optimizer.scale_next_gradients(0.5, 0.25);
  optimizer.scale_next_gradients(0.25, 2);  // in their place
  optimizer.step(pieces, 1);
  CHECK(param_of(pieces[0]) == std::vector<float>{-0.5F, -1});
  CHECK(param_of(pieces[1]) == std::vector<float>{-2});
  CHECK(pieces[0].grad.to_vector<float>() == std::vector<float>{1, 2});
  optimizer.step(pieces, 1);
  CHECK(param_of(pieces[0]) == std::vector<float>{-1.5F, -3});
}

TEST_CASE("an elementwise optimizer gives the same bits however parameters are cut") {
  const auto train = [](std::vector<std::int64_t> cuts) {
    constexpr std::int64_t kSize = 37;
    std::vector<float> start, grad;
    for (int i = 0; i < kSize; ++i) {
      start.push_back(std::sin(static_cast<float>(i)));
      grad.push_back(std::cos(5 * static_cast<float>(i)));
    }
    const Tensor param = floats(start), gradient = floats(grad);
    std::vector<Piece> pieces;
    std::int64_t begin = 0;
    cuts.push_back(kSize);
    for (const std::int64_t end : cuts) {
      pieces.push_back({.key = std::to_string(begin),
                        .param = param.narrow(0, begin, end - begin),
                        .grad = gradient.narrow(0, begin, end - begin),
                        .unit = {}});
      begin = end;
    }
    AdamW optimizer({});
    for (int step = 0; step < 5; ++step) optimizer.step(pieces, 1e-2);
    return param.to_vector<float>();
  };
  CHECK(train({}) == train({1, 9, 30}));
  CHECK(train({}) == train({3, 36}));
}

TEST_CASE("state comes with the first step, counts as OPTIMIZER and knows its unit") {
  Context context;
  const ContextScope scope(context);
  context.trace().set_recording(true);
  AdamW optimizer({});
  std::vector<Piece> pieces{piece("w", {1, 2, 3}, {1, 1, 1}), piece("empty", {}, {})};
  CHECK_FALSE(optimizer.has_state("w"));
  CHECK(context.tracker().current()[MemoryKind::optimizer] == 0);
  optimizer.step(pieces, 0.1);
  CHECK(optimizer.has_state("w"));
  CHECK(context.tracker().current()[MemoryKind::optimizer] == 2 * 3 * 4);
  const Owner* owner = optimizer.state(pieces[0]).at("exp_avg").storage()->owner();
  REQUIRE(owner != nullptr);
  CHECK(owner->unit == "unit w");
  CHECK(owner->name == "w");
  optimizer.step(pieces, 0.1);
  CHECK(context.tracker().current()[MemoryKind::optimizer] == 2 * 3 * 4);
  CHECK(context.trace().lines({EventKind::step}) == std::vector<std::string>{"step", "step"});
}

TEST_CASE("a piece without a gradient is an error that names it, before anything is changed") {
  AdamW optimizer({});
  std::vector<Piece> pieces{piece("first", {1}, {1}), piece("second", {1}, {1})};
  pieces[1].grad = {};
  const std::string message = message_of<Error>([&] { optimizer.step(pieces, 1); });
  CHECK(message.find("'second'") != std::string::npos);
  CHECK(message.find("finish_gradients()") != std::string::npos);
  CHECK(param_of(pieces[0])[0] == 1);
  CHECK(optimizer.steps() == 0);
  pieces[1].grad = floats({1, 2});
  CHECK_THROWS_AS(optimizer.step(pieces, 1), Error);
}

}  // namespace fsdp::optim
