// Embedding, normalization, rotation and gating against the textbook.
#include "kernel_checks.h"

using namespace fsdp;
using namespace kernel_checks;
using ops::Write;

namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

TEST_CASE("an embedding copies rows, its gradient adds them up in token order") {
  const std::int64_t vocabulary = 37, width = GENERATE(1, 70, 130), rows = 301;
  const auto table = random_values(vocabulary * width, 1), dout = random_values(rows * width, 2);
  std::vector<std::int32_t> tokens;
  for (std::int64_t r = 0; r < rows; ++r) tokens.push_back(static_cast<std::int32_t>(r * r % 31));
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor t = at.values(table, {vocabulary, width}, dtype);
      const Tensor i = at.indices(tokens), d = at.values(dout, {rows, width}, dtype);
      const Tensor out = at.empty({rows, width}, dtype), set = at.empty({vocabulary, width}, dtype);
      ops::embedding(out, t, i);
      ops::embedding_backward(set, d, i, Write::set);
      ops::embedding_backward(t, d, i, Write::add);
      return std::vector{out, set, t};
    });
    std::vector<double> out, set(table.size(), 0), add = table;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < width; ++j) {
        const std::size_t to = index(tokens[index(r)] * width + j);
        out.push_back(table[to]);
        set[to] += dout[index(r * width + j)];
        add[to] += dout[index(r * width + j)];
      }
    }
    CHECK(doubles_of(outputs[0]) == out);
    CHECK(distance(outputs[1], set) < tolerance(dtype));
    CHECK(distance(outputs[2], add) < tolerance(dtype));
  }
}

TEST_CASE("an embedding's gradient passes over the padding token, and changes no other bit") {
  const std::int64_t vocabulary = 31, width = GENERATE(1, 70), rows = 301, padding = 9;
  const auto table = random_values(vocabulary * width, 1), dout = random_values(rows * width, 2);
  std::vector<std::int32_t> tokens;
  for (std::int64_t r = 0; r < rows; ++r) tokens.push_back(static_cast<std::int32_t>(r * r % 31));
  for (const DType dtype : kFloating) {
    for (const Write write : {Write::set, Write::add}) {
      const auto outputs = run_everywhere([&](const Placement& at) {
        const Tensor all = at.values(table, {vocabulary, width}, dtype);
        const Tensor some = at.values(table, {vocabulary, width}, dtype);
        const Tensor d = at.values(dout, {rows, width}, dtype), i = at.indices(tokens);
        ops::embedding_backward(all, d, i, write);
        ops::embedding_backward(some, d, i, write, padding);
        return std::vector{all, some};
      });
      const std::vector<double> all = doubles_of(outputs[0]);
      std::vector<double> expected = all;
      const Placement here;
      const auto held = doubles_of(here.values(table, {vocabulary, width}, dtype));
      for (std::int64_t j = padding * width; j < (padding + 1) * width; ++j)
        expected[index(j)] = write == Write::add ? held[index(j)] : 0;
      CHECK(doubles_of(outputs[1]) == expected);
      CHECK(all != expected);
    }
  }
}

TEST_CASE("a token outside the vocabulary is named, and nothing is written") {
  const Placement at;
  const Tensor table = Tensor::zeros({5, 2}), out = Tensor::zeros({3, 2});
  ops::fill(table, 1);
  for (const std::int32_t bad : {5, -1}) {
    const std::string message = message_of<Error>([&] {
      ops::embedding(out, table, at.indices({0, 1, bad}));
    });
    CHECK(message == "embedding: token " + std::to_string(bad) +
                         " at position 2 is outside the vocabulary [0, 5)");
    CHECK_THROWS_AS(ops::embedding_backward(table, out, at.indices({0, 1, bad}), Write::set),
                    Error);
  }
  CHECK(out.to_vector<float>() == std::vector<float>(6, 0));
  CHECK(table.to_vector<float>() == std::vector<float>(10, 1));
  CHECK_THROWS_AS(ops::embedding(out, table, Tensor::zeros({3}, DType::int64)), Error);
}

TEST_CASE("RMS normalization and its gradients") {
  const std::int64_t rows = GENERATE(1, 150), width = GENERATE(3, 32, 77, 384);
  const double eps = 1e-5;
  const auto x = random_values(rows * width, 1, -3, 3), w = random_values(width, 2, 0.5, 1.5);
  const auto dy = random_values(rows * width, 3), before = random_values(rows * width, 4);
  std::vector<double> out(x.size()), rstd(index(rows)), dx(x.size()), dw(w.size(), 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0, dot = 0;
    for (std::int64_t j = 0; j < width; ++j)
      squares += x[index(r * width + j)] * x[index(r * width + j)];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    rstd[index(r)] = scale;
    for (std::int64_t j = 0; j < width; ++j) {
      const std::size_t at = index(r * width + j);
      out[at] = x[at] * scale * w[index(j)];
      dw[index(j)] += dy[at] * x[at] * scale;
      dot += dy[at] * w[index(j)] * x[at] * scale;
    }
    for (std::int64_t j = 0; j < width; ++j) {
      const std::size_t at = index(r * width + j);
      dx[at] = scale * (dy[at] * w[index(j)] - x[at] * scale * dot / static_cast<double>(width));
    }
  }
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Shape shape{rows, width};
      const Tensor tx = at.values(x, shape, dtype), tw = at.values(w, {width}, dtype);
      const Tensor tdy = at.values(dy, shape, dtype), y = at.empty(shape, dtype);
      const Tensor scale = at.empty({rows}, dtype);
      ops::rms_norm(y, scale, tx, tw, eps);
      const Tensor set = at.empty(shape, dtype), add = at.values(before, shape, dtype);
      const Tensor dweight = at.empty({width}, dtype), more = at.values(w, {width}, dtype);
      ops::rms_norm_backward(set, Write::set, dweight, Write::set, tdy, tx, tw, scale);
      ops::rms_norm_backward(add, Write::add, Tensor(), Write::set, tdy, tx, tw, scale);
      ops::rms_norm_backward(Tensor(), Write::set, more, Write::add, tdy, tx, tw, scale);
      return std::vector{y, scale, set, dweight, add, more};
    });
    std::vector<double> add = before, more = w;
    for (std::size_t i = 0; i < add.size(); ++i) add[i] += dx[i];
    for (std::size_t i = 0; i < more.size(); ++i) more[i] += dw[i];
    CHECK(distance(outputs[0], out) < tolerance(dtype));
    CHECK(distance(outputs[1], rstd) < tolerance(dtype));
    CHECK(distance(outputs[2], dx) < tolerance(dtype));
    CHECK(distance(outputs[3], dw) < tolerance(dtype));
    CHECK(distance(outputs[4], add) < tolerance(dtype));
    CHECK(distance(outputs[5], more) < tolerance(dtype));
  }
}

TEST_CASE("a sum and its norm have the bits of an addition and a norm") {
  const std::int64_t rows = GENERATE(1, 37), width = GENERATE(1, 31, 256, 1003);
  const auto x = random_values(rows * width, 1), y = random_values(rows * width, 2);
  const auto w = random_values(width, 3);
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Shape shape{rows, width};
      const Tensor tx = at.values(x, shape, dtype), ty = at.values(y, shape, dtype);
      const Tensor tw = at.values(w, {width}, dtype), sum = at.empty(shape, dtype);
      const Tensor out = at.empty(shape, dtype), rstd = at.empty({rows}, dtype);
      ops::add(sum, tx, ty);
      ops::rms_norm(out, rstd, sum, tw, 1e-5);
      std::vector all{sum, out, rstd};
      const auto together = [&](const Tensor& place) {
        const Tensor normed = at.empty(shape, dtype), scale = at.empty({rows}, dtype);
        ops::add_rms_norm(normed, scale, place, tx, ty, tw, 1e-5);
        all.insert(all.end(), {place, normed, scale});
      };
      together(at.empty(shape, dtype));
      together(ty);
      return all;
    });
    for (std::size_t i = 3; i < outputs.size(); ++i) {
      INFO("output " << i);
      CHECK(ops::equal_bits(outputs[i], outputs[i % 3]));
    }
  }
}

TEST_CASE("rotation by position, and back") {
  const std::int64_t batch = 2, length = 33, heads = 3, width = GENERATE(2, 8, 34, 64);
  const std::int64_t pairs = width / 2;
  const auto x = random_values(batch * length * heads * width, 1);
  std::vector<double> expected = x;
  for (std::int64_t row = 0; row < batch * length * heads; ++row) {
    const auto t = static_cast<double>(row / heads % length);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle =
          t * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      const double a = x[index(row * width + i)], b = x[index(row * width + pairs + i)];
      expected[index(row * width + i)] = a * std::cos(angle) - b * std::sin(angle);
      expected[index(row * width + pairs + i)] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor cos = at.empty({length + 5, pairs}, dtype),
                   sin = at.empty({length + 5, pairs}, dtype);
      ops::rope_tables(cos, sin, 10000);
      const Tensor there = at.values(x, {batch, length, heads, width}, dtype);
      ops::rope(there, cos, sin, false);
      const Tensor back = at.values(doubles_of(there), {batch, length, heads, width}, dtype);
      ops::rope(back, cos, sin, true);
      return std::vector{there, back};
    });
    CHECK(distance(outputs[0], expected) < tolerance(dtype));
    CHECK(distance(outputs[1], x) < tolerance(dtype));
  }
  const Tensor odd = Tensor::zeros({1, 2, 1, 3}), table = Tensor::zeros({1, 1});
  CHECK_THROWS_AS(ops::rope(odd, table, table, false), Error);
  CHECK_THROWS_AS(ops::rope(Tensor::zeros({1, 2, 1, 2}), table, table, false), Error);
}

TEST_CASE("the gated unit and its gradients, in place too") {
  const std::int64_t count = 40003;
  auto gate = random_values(count, 1, -8, 8);
  gate[0] = 60, gate[1] = -60, gate[2] = 0, gate[3] = 120, gate[4] = -120;
  const auto up = random_values(count, 2), dout = random_values(count, 3);
  std::vector<double> out, dgate, dup;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double s = 1 / (1 + std::exp(-gate[i]));
    out.push_back(gate[i] * s * up[i]);
    dup.push_back(dout[i] * gate[i] * s);
    dgate.push_back(dout[i] * up[i] * (s + gate[i] * s * (1 - s)));
  }
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor g = at.values(gate, {count}, dtype), u = at.values(up, {count}, dtype);
      const Tensor d = at.values(dout, {count}, dtype), y = at.empty({count}, dtype);
      ops::swiglu(y, g, u);
      const Tensor dg = at.empty({count}, dtype), du = at.empty({count}, dtype);
      ops::swiglu_backward(dg, du, d, g, u);
      ops::swiglu_backward(g, u, d, g, u);
      return std::vector{y, dg, du, g, u};
    });
    CHECK(distance(outputs[0], out) < tolerance(dtype));
    CHECK(distance(outputs[1], dgate) < tolerance(dtype));
    CHECK(distance(outputs[2], dup) < tolerance(dtype));
    CHECK(doubles_of(outputs[3]) == doubles_of(outputs[1]));
    CHECK(doubles_of(outputs[4]) == doubles_of(outputs[2]));
  }
}
