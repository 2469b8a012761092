#include "kernel_checks.h"

using namespace fsdp;
using namespace kernel_checks;
using ops::Rule;

TEST_CASE("AdamW follows the textbook for ten steps") {
  const std::int64_t count = 40003;
  const auto start = random_values(count, 1);
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor p = at.values(start, {count}, dtype);
      const Tensor m = at.values(std::vector<double>(start.size(), 0), {count}, dtype);
      const Tensor v = at.values(std::vector<double>(start.size(), 0), {count}, dtype);
      for (std::uint64_t step = 1; step <= 10; ++step) {
        const Tensor g = at.values(random_values(count, 1 + step), {count}, dtype);
        ops::update(p, g, m, v, {Rule::adamw, 1e-2, static_cast<std::int64_t>(step)});
      }
      return std::vector{p, m, v};
    });
    std::vector<double> p = start, m(start.size(), 0), v = m;
    for (std::uint64_t step = 1; step <= 10; ++step) {
      const auto g = random_values(count, 1 + step);
      const double correction1 = 1 - std::pow(0.9, step), correction2 = 1 - std::pow(0.95, step);
      for (std::size_t i = 0; i < g.size(); ++i) {
        p[i] *= 1 - 1e-2 * 0.1;
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
        p[i] -= 1e-2 / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + 1e-8);
      }
    }
    std::vector<double> change = p, changed = doubles_of(outputs[0]);
    for (std::size_t i = 0; i < p.size(); ++i) {
      change[i] -= start[i];
      changed[i] -= start[i];
    }
    CHECK(distance(changed, change) < 10 * tolerance(dtype));
    CHECK(distance(outputs[1], m) < tolerance(dtype));
    CHECK(distance(outputs[2], v) < tolerance(dtype));
  }
}

TEST_CASE("a padding of zeros stays zero under AdamW") {
  const Tensor p = Tensor::zeros({5}), g = Tensor::zeros({5}), m = Tensor::zeros({5}),
               v = Tensor::zeros({5});
  ops::update(p, g, m, v, {Rule::adamw, 1e-3, 1});
  CHECK(p.to_vector<float>() == std::vector<float>(5, 0));
  CHECK_THROWS_AS(ops::update(p, g, m, v, {Rule::adamw, 1e-3, 0}), Error);
  CHECK_THROWS_AS(ops::update(p, g, m, Tensor::zeros({4}), {Rule::adamw, 1e-3, 1}), Error);
  CHECK_THROWS_AS(ops::update(p, g, m, {}, {Rule::adamw, 1e-3, 1}), Error);
}

TEST_CASE("Adam, Adamax, Adagrad and Adadelta follow the textbook for five steps") {
  const std::int64_t count = 40003;
  const auto start = random_values(count, 1);
  const auto grads = [&](std::uint64_t step) { return random_values(count, 1 + step); };
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const auto copies = [&](double value) {
        return at.values(std::vector<double>(start.size(), value), {count}, dtype);
      };
      std::vector<Tensor> params;
      for (int i = 0; i < 4; ++i) params.push_back(at.values(start, {count}, dtype));
      const Tensor m = copies(0), v = copies(0), mean = copies(0), u = copies(0);
      const Tensor sum = copies(0.25), squares = copies(0), deltas = copies(0);
      for (std::uint64_t step = 1; step <= 5; ++step) {
        const Tensor g = at.values(grads(step), {count}, dtype);
        const auto t = static_cast<std::int64_t>(step);
        ops::update(params[0], g, m, v, {Rule::adam, 1e-2, t});
        ops::update(params[1], g, mean, u, {Rule::adamax, 1e-2, t});
        ops::update(params[2], g, sum, {},
                    {Rule::adagrad, 1e-2, t, {.eps = 1e-10, .lr_decay = 0.5}});
        ops::update(params[3], g, squares, deltas, {Rule::adadelta, 0.5, t, {.eps = 1e-6}});
      }
      return params;
    });
    std::vector<std::vector<double>> p(4, start);
    std::vector<double> m(start.size(), 0), v = m, mean = m, u = m, squares = m, deltas = m;
    std::vector<double> sum(start.size(), 0.25);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const auto g = grads(step);
      const double correction1 = 1 - std::pow(0.9, step), correction2 = 1 - std::pow(0.95, step);
      for (std::size_t i = 0; i < g.size(); ++i) {
        double d = g[i] + 0.1 * p[0][i];
        m[i] = 0.9 * m[i] + 0.1 * d;
        v[i] = 0.95 * v[i] + 0.05 * d * d;
        p[0][i] -= 1e-2 / correction1 * m[i] / (std::sqrt(v[i] / correction2) + 1e-8);
        d = g[i] + 0.1 * p[1][i];
        mean[i] = 0.9 * mean[i] + 0.1 * d;
        u[i] = std::max(0.95 * u[i], std::abs(d) + 1e-8);
        p[1][i] -= 1e-2 / correction1 * mean[i] / u[i];
        d = g[i] + 0.1 * p[2][i];
        sum[i] += d * d;
        p[2][i] -=
            1e-2 / (1 + 0.5 * (static_cast<double>(step) - 1)) * d / (std::sqrt(sum[i]) + 1e-10);
        d = g[i] + 0.1 * p[3][i];
        squares[i] = 0.9 * squares[i] + 0.1 * d * d;
        const double delta = std::sqrt(deltas[i] + 1e-6) / std::sqrt(squares[i] + 1e-6) * d;
        deltas[i] = 0.9 * deltas[i] + 0.1 * delta * delta;
        p[3][i] -= 0.5 * delta;
      }
    }
    for (std::size_t k = 0; k < 4; ++k) CHECK(distance(outputs[k], p[k]) < tolerance(dtype));
  }
}

TEST_CASE("SGD with and without momentum and decay") {
  const std::int64_t count = 20001;
  const double momentum = GENERATE(0.0, 0.9), decay = GENERATE(0.0, 0.01);
  const auto start = random_values(count, 1);
  const auto outputs = run_everywhere([&](const Placement& at) {
    const Tensor p = at.values(start, {count}, DType::float32);
    const Tensor buffer = momentum == 0 ? Tensor() : at.empty({count}, DType::float32);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const Tensor g = at.values(random_values(count, 1 + step), {count}, DType::float32);
      ops::update(p, g, buffer, {},
                  {Rule::sgd,
                   0.1,
                   static_cast<std::int64_t>(step),
                   {.weight_decay = decay, .momentum = momentum}});
    }
    return std::vector{p};
  });
  std::vector<double> p = start, buffer(start.size(), 0);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const auto g = random_values(count, 1 + step);
    for (std::size_t i = 0; i < g.size(); ++i) {
      buffer[i] = momentum * buffer[i] + g[i] + decay * p[i];
      p[i] -= 0.1 * buffer[i];
    }
  }
  CHECK(distance(outputs[0], p) < tolerance(DType::float32));
}

TEST_CASE("an update scales gradients with the bits of scale(), and leaves them", "[optimizer]") {
  const std::int64_t count = 1003;
  bool rounds_twice = false;
  for (const ops::OptimizerRow& row : ops::optimizers()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
      const auto updated = [&](const Tensor& grad, double mean, double clip) {
        const Tensor p = Tensor::empty({count}, dtype), m = Tensor::empty({count}, dtype);
        const Tensor v = Tensor::empty({count}, dtype);
        ops::copy(p, Tensor::from(random_values(count, 1), {count}));
        for (const Tensor& state : {m, v}) ops::fill(state, 0.25);
        ops::update(
            p, grad, m, v,
            {.rule = row.rule, .lr = 0.01, .step = 3, .mean_factor = mean, .clip_factor = clip});
        return std::vector{p, m, v};
      };
      const Tensor grad = Tensor::empty({count}, dtype), scaled = Tensor::empty({count}, dtype);
      ops::copy(grad, Tensor::from(random_values(count, 2), {count}));
      ops::copy(scaled, grad);
      ops::scale(scaled, 1.0 / 3);
      ops::scale(scaled, 1.0 / 7);
      const auto at_once = updated(grad, 1.0 / 3, 1.0 / 7), expected = updated(scaled, 1, 1);
      const auto unscaled = updated(grad, 1, 1), rounded_once = updated(grad, 1.0 / 3 / 7, 1);
      bool makes_no_difference = true;
      INFO(row.name << " " << name_of(dtype));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(ops::equal_bits(at_once[i], expected[i]));
        makes_no_difference &= ops::equal_bits(at_once[i], unscaled[i]);
        rounds_twice |= !ops::equal_bits(at_once[i], rounded_once[i]);
      }
      CHECK_FALSE(makes_no_difference);
      Tensor before = Tensor::empty({count}, dtype);
      ops::copy(before, Tensor::from(random_values(count, 2), {count}));
      CHECK(ops::equal_bits(grad, before));
    }
  }
  CHECK(rounds_twice);
}
