#include "kernel_checks.h"

using namespace fsdp;
using namespace kernel_checks;
using ops::Transpose;

namespace {

std::vector<double> sizes_of(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

/// Largest error of an element over the sum of the sizes of its terms.
double largest_error(const Tensor& out, const std::vector<double>& expected,
                     const std::vector<double>& sizes) {
  const std::vector<double> values = doubles_of(out);
  double largest = values.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(values[i] - expected[i]) / sizes[i]);
  }
  return largest;
}

/// op(a) (m, k) · op(b) (k, n) in double.
std::vector<double> product(const std::vector<double>& a, bool ta, const std::vector<double>& b,
                            bool tb, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<double> c(static_cast<std::size_t>(m * n), 0);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      const double x = a[static_cast<std::size_t>(ta ? p * m + i : i * k + p)];
      for (std::int64_t j = 0; j < n; ++j) {
        const double y = b[static_cast<std::size_t>(tb ? j * k + p : p * n + j)];
        c[static_cast<std::size_t>(i * n + j)] += x * y;
      }
    }
  }
  return c;
}

}  // namespace

TEST_CASE("products of every transposition, shape and alignment") {
  const std::int64_t m = GENERATE(1, 7, 64, 133, 300);
  const std::int64_t n = GENERATE(1, 17, 128, 517);
  const std::int64_t k = GENERATE(1, 33, 96);
  const auto a = random_values(m * k, 1), b = random_values(k * n, 2), c = random_values(m * n, 3);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const DType dtype = (m + n + k) % 3 == 0 ? DType::float64 : DType::float32;
      const auto outputs = run_everywhere([&](const Placement& at) {
        const Tensor x = at.values(a, ta ? Shape{k, m} : Shape{m, k}, dtype);
        const Tensor y = at.values(b, tb ? Shape{n, k} : Shape{k, n}, dtype);
        const Tensor set = at.empty({m, n}, dtype), add = at.values(c, {m, n}, dtype);
        const auto of = [](bool transposed) { return transposed ? Transpose::yes : Transpose::no; };
        ops::matmul(set, x, of(ta), y, of(tb));
        ops::matmul(add, x, of(ta), y, of(tb), ops::Write::add);
        return std::vector{set, add};
      });
      std::vector<double> expected = product(a, ta, b, tb, m, n, k);
      std::vector<double> sizes = product(sizes_of(a), ta, sizes_of(b), tb, m, n, k);
      INFO("m " << m << " n " << n << " k " << k << " ta " << ta << " tb " << tb);
      CHECK(largest_error(outputs[0], expected, sizes) < tolerance(dtype));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += c[i];
        sizes[i] += std::abs(c[i]);
      }
      CHECK(largest_error(outputs[1], expected, sizes) < tolerance(dtype));
    }
  }
}

TEST_CASE("the shapes of a training step give the same bits on any number of threads") {
  struct Case {
    std::int64_t m, n, k;
    bool ta, tb;
  };
  const Case c = GENERATE(Case{1024, 128, 128, false, true}, Case{1024, 352, 128, false, true},
                          Case{1024, 128, 352, false, false}, Case{128, 128, 1024, true, false},
                          Case{352, 128, 1024, true, false}, Case{48, 5003, 64, false, true});
  const auto a = random_values(c.m * c.k, 4), b = random_values(c.k * c.n, 5);
  const auto outputs = run_everywhere([&](const Placement& at) {
    const DType dtype = DType::float32;
    const Tensor x = at.values(a, c.ta ? Shape{c.k, c.m} : Shape{c.m, c.k}, dtype);
    const Tensor y = at.values(b, c.tb ? Shape{c.n, c.k} : Shape{c.k, c.n}, dtype);
    const Tensor out = at.empty({c.m, c.n}, dtype);
    ops::matmul(out, x, c.ta ? Transpose::yes : Transpose::no, y,
                c.tb ? Transpose::yes : Transpose::no);
    return std::vector{out};
  });
  CHECK(distance(outputs[0], product(a, c.ta, b, c.tb, c.m, c.n, c.k)) < 1e-6);
}

TEST_CASE("products without rows, columns or terms") {
  const auto empty = [](std::int64_t rows, std::int64_t columns) {
    return Tensor::empty({rows, columns});
  };
  ops::matmul(empty(0, 3), empty(0, 2), Transpose::no, empty(2, 3), Transpose::no);
  ops::matmul(empty(3, 0), empty(3, 2), Transpose::no, empty(2, 0), Transpose::no);
  const Tensor out = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  ops::matmul(out, empty(2, 0), Transpose::no, empty(0, 2), Transpose::no, ops::Write::add);
  CHECK(out.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
  ops::matmul(out, empty(2, 0), Transpose::no, empty(0, 2), Transpose::no);
  CHECK(out.to_vector<float>() == std::vector<float>(4, 0));
}

TEST_CASE("a product overwrites whatever was there") {
  const Tensor a = Tensor::from(std::vector<float>(64 * 64, 1), {64, 64});
  const Tensor out = Tensor::from(std::vector<float>(64 * 64, NAN), {64, 64});
  ops::matmul(out, a, Transpose::no, a, Transpose::no);
  CHECK(out.to_vector<float>() == std::vector<float>(64 * 64, 64));
}

TEST_CASE("factors that do not fit are named with their shapes") {
  const Tensor a = Tensor::zeros({2, 3}), b = Tensor::zeros({4, 5});
  const std::string message = message_of<Error>([&] {
    ops::matmul(Tensor::zeros({2, 5}), a, Transpose::no, b, Transpose::no);
  });
  CHECK(message == "matmul: op(a) is (2, 3) but op(b) is (4, 5)");
  CHECK_THROWS_AS(ops::matmul(Tensor::zeros({2, 2}), a, Transpose::no, a, Transpose::no), Error);
  CHECK_THROWS_AS(ops::matmul(Tensor::zeros({3, 2}), a, Transpose::no, a, Transpose::yes), Error);
}
