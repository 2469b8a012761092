// What the kernels cost, as ratios measured in one run: our products over the library's own product
// on the same number of threads (a separate process, so that the two thread pools never meet), and
// every other kernel of a training step over those products.
//
//   bench_kernels [threads] [--shapes] [model…]
#include "device/context.h"
#include "tensor/exact_norm.h"
#include "tensor/ops.h"
#include "tensor/tree_sum.h"

#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

using namespace fsdp;
using ops::Transpose;

namespace {

struct Model {
  std::string name;
  std::int64_t vocabulary, width, layers, heads, ffn, batch, length;
  std::int64_t rows() const { return batch * length; }
};

const std::vector<Model> kAllModels = {{"tiny", 256, 128, 4, 4, 352, 8, 128},
                                       {"small", 256, 384, 6, 6, 1024, 8, 256},
                                       {"llama_124m", 50304, 768, 12, 12, 2048, 4, 64}};

/// Smallest time of one call, in seconds: the machine may be busy with other things.
double best_time(const std::function<void()>& call, double budget = 1.5) {
  using Clock = std::chrono::steady_clock;
  call();
  double best = 1e9;
  const auto begin = Clock::now();
  for (int runs = 0; runs < 4 || Clock::now() - begin < std::chrono::duration<double>(budget);
       ++runs) {
    const auto start = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

Tensor values(const Shape& shape, double scale = 1) {
  const Tensor t = Tensor::empty(shape);
  float* to = t.data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    to[i] = static_cast<float>(scale) * (static_cast<float>(i * 7919 % 2003) / 1001 - 1);
  }
  return t;
}

/// out = op(a) · op(b): one product of a linear layer.
struct Product {
  Tensor out, a, b;
  bool ta, tb;
  std::string shape() const {
    return fmt::format("{}x{}x{} {}{}", out.size(0), out.size(1), ta ? a.size(0) : a.size(1),
                       ta ? 'T' : 'N', tb ? 'T' : 'N');
  }
  double flops() const {
    return 2.0 * static_cast<double>(out.numel()) * static_cast<double>(ta ? a.size(0) : a.size(1));
  }
};

/// The products of one step: for each linear layer y = x Wᵀ, then dx = dy W and dW = dyᵀ x.
/// Weights and
/// their gradients are distinct, activations are shared by layers of one shape.
std::vector<Product> products_of(const Model& model) {
  const std::int64_t rows = model.rows();
  std::map<std::int64_t, std::pair<Tensor, Tensor>> activations;
  const auto activation = [&](std::int64_t width, bool gradient) {
    auto& pair = activations[width];
    if (!pair.first.is_defined()) pair = {values({rows, width}), values({rows, width})};
    return gradient ? pair.second : pair.first;
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> layers;  // (in, out)
  for (std::int64_t i = 0; i < model.layers; ++i) {
    for (int k = 0; k < 4; ++k) layers.emplace_back(model.width, model.width);
    layers.emplace_back(model.width, model.ffn);
    layers.emplace_back(model.width, model.ffn);
    layers.emplace_back(model.ffn, model.width);
  }
  layers.emplace_back(model.width, model.vocabulary);
  std::vector<Product> forward, backward;
  for (const auto& [in, out] : layers) {
    const Tensor weight = values({out, in}), gradient = values({out, in});
    const Tensor x = activation(in, false), dx = activation(in, true);
    const Tensor y = activation(out, in == out), dy = activation(out, in != out);
    forward.push_back({y, x, weight, false, true});
    backward.push_back({dx, dy, weight, false, false});
    backward.push_back({gradient, dy, x, true, false});
  }
  forward.insert(forward.end(), backward.rbegin(), backward.rend());
  return forward;
}

void run_ours(const Product& p) {
  const auto of = [](bool transposed) { return transposed ? Transpose::yes : Transpose::no; };
  ops::matmul(p.out, p.a, of(p.ta), p.b, of(p.tb));
}

void run_library(const Product& p) {
  const auto of = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const auto extent = [](std::int64_t n) { return static_cast<int>(n); };
  const int depth = extent(p.ta ? p.a.size(0) : p.a.size(1));
  cblas_sgemm(CblasRowMajor, of(p.ta), of(p.tb), extent(p.out.size(0)), extent(p.out.size(1)),
              depth, 1.0f, p.a.data<float>(), extent(p.a.size(1)), p.b.data<float>(),
              extent(p.b.size(1)), 0.0f, p.out.data<float>(), extent(p.out.size(1)));
}

/// Times by name: "model" for all products of a step, "model shape" for one.
std::map<std::string, double> time_products(void (*run)(const Product&), bool shapes,
                                            const std::vector<Model>& models) {
  std::map<std::string, double> times;
  for (const Model& model : models) {
    const std::vector<Product> products = products_of(model);
    times[model.name] = best_time([&] { std::ranges::for_each(products, run); }, 4);
    if (!shapes) continue;
    for (const Product& p : products) {
      const std::string key = model.name + " " + p.shape();
      if (!times.contains(key)) times[key] = best_time([&] { run(p); }, 0.2);
    }
  }
  return times;
}

/// The same in a process of its own, where the library has its threads; with its OpenMP build, the
/// fastest of its builds, if that is installed beside the one we are linked to.
std::map<std::string, double> time_library(const std::string& self, int threads, bool shapes,
                                           const std::vector<Model>& models) {
  const std::string folder = "/usr/lib/x86_64-linux-gnu/openblas-openmp";
  std::string command =
      fmt::format("LD_LIBRARY_PATH={} OPENBLAS_NUM_THREADS={} OMP_NUM_THREADS={} '{}' --library {}",
                  folder, threads, threads, self, shapes ? "--shapes" : "");
  for (const Model& model : models) command += " " + model.name;
  std::map<std::string, double> times;
  FILE* pipe = popen(command.c_str(), "r");
  FSDP_CHECK(pipe != nullptr, "cannot run {}", command);
  std::array<char, 256> line{};
  while (fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
    const std::string text = line.data();
    const std::size_t tab = text.find('\t');
    if (tab != std::string::npos) times[text.substr(0, tab)] = std::stod(text.substr(tab));
  }
  pclose(pipe);
  return times;
}

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
  const Tensor loss = values({1}), lse = values({rows});
  const double all = 4.0 * static_cast<double>(logits.numel());
  step.add("cross-entropy", 1, 4 * all, all,
           [&] { ops::cross_entropy(loss, lse, logits, tokens); });
  step.add("cross-entropy backward", 1, 4 * all, 2 * all,
           [&] { ops::cross_entropy_backward(dlogits, loss, logits, tokens, lse); });
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
    ops::adamw(p, g, mean, square, {1e-4, 0.9, 0.95, 1e-8, 0.1, 10});
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

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  int threads = 2;
  std::vector<Model> models;
  bool shapes = false, library = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    shapes |= argument == "--shapes";
    library |= argument == "--library";
    for (const Model& model : kAllModels) {
      if (argument == model.name) models.push_back(model);
    }
    if (const int number = std::atoi(argv[i]); number > 0) threads = number;
  }
  if (models.empty()) models = kAllModels;
  Context context({.threads = threads});
  const ContextScope scope(context);
  if (library) {
    for (const auto& [name, seconds] : time_products(run_library, shapes, models)) {
      fmt::print("{}\t{}\n", name, seconds);
    }
    return 0;
  }
  const auto lower_bound = time_library(argv[0], threads, shapes, models);
  const auto ours = time_products(run_ours, shapes, models);
  fmt::print("products of a step on {} threads: ours, over the library's own\n", threads);
  for (const auto& [name, seconds] : ours) {
    print_line(name, seconds, seconds / lower_bound.at(name), "");
  }
  const double triad = triad_bandwidth();
  for (const Model& model : models) {
    fmt::print("\n{}: time per step, over the library's products\n", model.name);
    Step step{lower_bound.at(model.name), ours.at(model.name)};
    print_line("products", step.total, step.total / step.lower_bound, "");
    bench_attention(model, step);
    bench_rows(model, step);
    bench_optimizer(model, triad, step);
    print_line("sum", step.total, step.total / step.lower_bound, "");
  }
  bench_tree_sum();
  return 0;
}
