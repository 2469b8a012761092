// What the kernels cost, as ratios measured in one run: our products over OpenBLAS's, with the
// fastest of its kernels on the same number of threads, and every other kernel of a training step
// over those products.
//
//   bench_kernels [threads] [--errors] [model…]     also prints the largest error of each product
//   bench_kernels --by WHOM [threads] [--errors] model       one measurement, for the parent
#include "bench/support/comparison.h"
#include "bench/support/measure.h"
#include "bench/support/openblas.h"
#include "device/context.h"
#include "tensor/exact_norm.h"
#include "tensor/ops.h"
#include "tensor/tree_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

using namespace fsdp;
using namespace fsdp::bench;

namespace {

void print_line(const std::string& what, double seconds, double over, const std::string& note) {
  fmt::print("  {:<34} {:>9.3f} ms {:>7.3f}  {}\n", what, 1e3 * seconds, over, note);
}

/// Time of a kernel that runs `count` times a step; adds to the step's total.
struct Step {
  double lower_bound, total;
  void add(const std::string& what, double count, double flops, double nbytes,
           const std::function<void()>& call) {
    const double once = best_time(call, 0.5);
    total += count * once;
    print_line(what, count * once, count * once / lower_bound,
               fmt::format("{:.1f} GF/s {:.1f} GB/s", flops / once * 1e-9, nbytes / once * 1e-9));
  }
};

void bench_attention(const Model& m, Step& step) {
  const std::int64_t head = m.width / m.heads, rows = m.rows();
  const Shape shape{m.batch, m.length, m.heads, head};
  const Tensor q = values(shape), k = values(shape), v = values(shape), out = values(shape);
  const Tensor dq = values(shape), dk = values(shape), dv = values(shape), dout = values(shape);
  const Tensor lse = values({m.batch, m.heads, m.length});
  const Tensor cos = values({m.length, head / 2}), sin = values({m.length, head / 2});
  const auto layers = static_cast<double>(m.layers);
  const double flops = 2.0 * static_cast<double>(rows * (m.length + 1) * m.width);
  const double nbytes = 4.0 * static_cast<double>(q.numel());
  step.add("attention", layers, flops, 4 * nbytes, [&] { ops::attention(out, lse, q, k, v); });
  step.add("attention backward", layers, 2.5 * flops, 8 * nbytes,
           [&] { ops::attention_backward(dq, dk, dv, dout, out, lse, q, k, v); });
  step.add("rotation, 4 per layer", 4 * layers, 1.5 * nbytes, 2 * nbytes,
           [&] { ops::rope(q, cos, sin, false); });
}

void bench_rows(const Model& m, Step& step) {
  const std::int64_t rows = m.rows();
  const Tensor x = values({rows, m.width}), y = values({rows, m.width}),
               dx = values({rows, m.width});
  const Tensor weight = values({m.width}), dweight = values({m.width}), rstd = values({rows});
  const double nbytes = 4.0 * static_cast<double>(x.numel());
  const auto norms = static_cast<double>(2 * m.layers + 1);
  step.add("RMS norm", norms, nbytes, 2 * nbytes, [&] { ops::rms_norm(y, rstd, x, weight, 1e-5); });
  step.add("RMS norm backward, adding", norms, 3 * nbytes, 6 * nbytes, [&] {
    ops::rms_norm_backward(dx, ops::Write::add, dweight, ops::Write::set, y, x, weight, rstd);
  });
  step.add("residual", norms - 1, nbytes / 4, 3 * nbytes, [&] { ops::add(y, y, x); });
  const Tensor gate = values({rows, m.ffn}), up = values({rows, m.ffn}),
               out = values({rows, m.ffn});
  const auto layers = static_cast<double>(m.layers);
  const double wide = 4.0 * static_cast<double>(gate.numel());
  step.add("gated unit", layers, 5 * wide, 3 * wide, [&] { ops::swiglu(out, gate, up); });
  step.add("gated unit backward, in place", layers, 6 * wide, 5 * wide, [&] {
    ops::swiglu_backward(gate, up, out, gate, up);
    // Values that stay in range however often this runs.
    gate.data<float>()[0] = up.data<float>()[0] = 1;
  });
  std::vector<std::int32_t> ids;
  for (std::int64_t r = 0; r < rows; ++r) {
    ids.push_back(static_cast<std::int32_t>(r * 31 % m.vocabulary));
  }
  const Tensor tokens = Tensor::from(ids, {rows});
  const Tensor logits = values({rows, m.vocabulary}), dlogits = values({rows, m.vocabulary});
  const Tensor loss = values({1}), losses = values({rows});
  const double all = 4.0 * static_cast<double>(logits.numel());
  step.add("cross-entropy", 1, 4 * all, all,
           [&] { ops::cross_entropy(loss, losses, logits, tokens); });
  step.add("cross-entropy and its gradient", 1, 8 * all, 2 * all,
           [&] { ops::cross_entropy(loss, losses, logits, tokens, dlogits); });
  const Tensor table = values({m.vocabulary, m.width}), dtable = values({m.vocabulary, m.width});
  step.add("embedding", 1, 0, 2 * nbytes, [&] { ops::embedding(y, table, tokens); });
  step.add("embedding backward, adding", 1, nbytes / 4, 3 * nbytes,
           [&] { ops::embedding_backward(dtable, y, tokens, ops::Write::add); });
}

/// Memory bandwidth of a = b + s c on all threads, in bytes a second.
double triad_bandwidth() {
  const std::int64_t count = 1 << 24, grain = 1 << 16;
  const Tensor a = values({count}), b = values({count}), c = values({count});
  float* to = a.data<float>();
  const float *x = b.data<float>(), *y = c.data<float>();
  const double seconds = best_time([&] {
    Context::current().pool().for_each(count / grain, [&](std::int64_t piece, std::byte*) {
      for (std::int64_t i = piece * grain; i < (piece + 1) * grain; ++i) to[i] = x[i] + 3 * y[i];
    });
  });
  return 12.0 * static_cast<double>(count) / seconds;
}

void bench_optimizer(const Model& m, double triad, Step& step) {
  const std::int64_t count = m.vocabulary * m.width * (m.name == "llama_124m" ? 1 : 2) +
                             m.layers * (4 * m.width + 3 * m.ffn) * m.width;
  const Tensor p = values({count}), g = values({count}, 1e-3), mean = values({count}, 1e-3);
  const Tensor square = values({count}, 1e-3);
  ops::multiply(square, mean, mean);
  const double nbytes = 28.0 * static_cast<double>(count);
  const double before = step.total;
  step.add("AdamW", 1, 0, nbytes, [&] {
    ops::update(p, g, mean, square, {ops::Rule::adamw, 1e-4, 10});
  });
  fmt::print("    {:.2f} of triad's bandwidth ({:.1f} GB/s)\n",
             nbytes / (step.total - before) / triad, triad * 1e-9);
  ExactSquareSum norm;
  step.add("exact norm", 1, 0, 4.0 * static_cast<double>(count), [&] { norm.add(g); });
}

void bench_tree_sum() {
  const std::int64_t count = 16 << 20;  // 64 MB a rank
  const Tensor out = Tensor::zeros({count}), a = values({count}), b = values({count});
  const Tensor c = values({count}), d = values({count});
  const auto bytes = [](const Tensor& t) { return static_cast<const std::byte*>(t.raw()); };
  const double copy = best_time([&] { std::memcpy(out.raw(), a.raw(), a.nbytes()); });
  fmt::print("\none thread, 64 MB\n");
  print_line("memcpy", copy, 1, fmt::format("{:.1f} GB/s", 2 * 67.1e6 / copy * 1e-9));
  for (const std::size_t leaves : {2u, 3u, 4u}) {
    const std::vector<const std::byte*> in = {bytes(a), bytes(b), bytes(c), bytes(d)};
    const std::span<const std::byte* const> some(in.data(), leaves);
    const double sum = best_time([&] { tree_sum(out.raw(), some, count, DType::float32); });
    const auto streams = static_cast<double>(leaves + 1);
    print_line(fmt::format("tree sum of {}", leaves), sum, sum / copy,
               fmt::format("{:.1f} GB/s", streams * 67.1e6 / sum * 1e-9));
  }
}

void bench_all(const std::string& program, const std::vector<Model>& chosen, int threads,
               bool errors) {
  const bool compared = openblas_is_installed();
  if (!compared) fmt::print("{}\n", kWithoutOpenBlas);
  fmt::print("products (rows x columns x depth, T: transposed) on {} threads\n", threads);
  std::vector<Comparison> products;
  double peak = 0;
  for (const Model& model : chosen) {
    products.push_back(compare(program, model, threads, errors));
    print(model, products.back(), errors);
    peak = std::max(peak, products.back().peak);
  }
  fmt::print("\npeak: {:.1f} GF/s of fused multiply-adds on registers\n", peak * 1e-9);
  if (compared) {
    fmt::print("ours over OpenBLAS, geometric mean of all shapes: {:.3f}\n", mean_ratio(products));
  }
  const double triad = triad_bandwidth();
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Model& model = chosen[i];
    const double ours = products[i].ours.back().seconds;
    fmt::print("\n{}: time per step, over {} products\n", model.name,
               compared ? "OpenBLAS's" : "our own");
    Step step{compared ? products[i].library.back().seconds : ours, ours};
    print_line("products", step.total, step.total / step.lower_bound, "");
    bench_attention(model, step);
    bench_rows(model, step);
    bench_optimizer(model, triad, step);
    print_line("sum", step.total, step.total / step.lower_bound, "");
  }
  bench_tree_sum();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  int threads = 2;
  std::vector<Model> chosen;
  bool errors = false;
  std::string by;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--by" && i + 1 < argc) by = argv[++i];
    errors |= argument == "--errors";
    for (const Model& model : models()) {
      if (argument == model.name) chosen.push_back(model);
    }
    if (const int number = std::atoi(argv[i]); number > 0) threads = number;
  }
  if (chosen.empty()) chosen = models();
  try {
    Context context({.threads = threads});
    const ContextScope scope(context);
    if (by.empty()) {
      bench_all(argv[0], chosen, threads, errors);
    } else {
      measure_products(by, chosen.front(), threads, errors);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_kernels: {}\n", error.what());
    return 1;
  }
  return 0;
}
