#include "kernel_checks.h"

using namespace fsdp;
using namespace kernel_checks;

namespace {

constexpr std::int64_t kCount = 40003;  // three pieces and a tail

}  // namespace

TEST_CASE("elementwise kernels round once per operation, anywhere") {
  const auto a = random_values(kCount, 1), b = random_values(kCount, 2);
  for (const DType dtype : kFloating) {
    const auto rounded = [dtype](double x) {
      return dtype == DType::float32 ? static_cast<double>(static_cast<float>(x)) : x;
    };
    const auto outputs = run_everywhere([&](const Placement& at) {
      const auto empty = [&] { return at.empty({kCount}, dtype); };
      const Tensor x = at.values(a, {kCount}, dtype), y = at.values(b, {kCount}, dtype);
      const Tensor sum = empty(), product = empty(), more = at.values(a, {kCount}, dtype);
      ops::add(sum, x, y);
      ops::multiply(product, x, y);
      ops::multiply(more, x, y, ops::Write::add);
      const Tensor scaled = at.values(a, {kCount}, dtype), in_place = at.values(a, {kCount}, dtype);
      ops::scale(scaled, 0.1);
      ops::add(in_place, in_place, y);
      const Tensor copied = empty();
      ops::write(copied, x, ops::Write::set);
      return std::vector{sum, product, more, scaled, in_place, copied};
    });
    for (std::size_t i = 0; i < static_cast<std::size_t>(kCount); ++i) {
      const double x = a[i], y = b[i];
      REQUIRE(doubles_of(outputs[0].narrow(0, static_cast<std::int64_t>(i), 1))[0] ==
              rounded(x + y));
      if (i > 300) break;  // every lane and more; the rest below
    }
    std::vector<double> sum, product, more, scaled;
    for (std::size_t i = 0; i < static_cast<std::size_t>(kCount); ++i) {
      sum.push_back(rounded(a[i] + b[i]));
      product.push_back(rounded(a[i] * b[i]));
      more.push_back(rounded(a[i] + product.back()));
      scaled.push_back(rounded(a[i] * rounded(0.1)));
    }
    CHECK(doubles_of(outputs[0]) == sum);
    CHECK(doubles_of(outputs[1]) == product);
    CHECK(doubles_of(outputs[2]) == more);
    CHECK(doubles_of(outputs[3]) == scaled);
    CHECK(doubles_of(outputs[4]) == sum);
    CHECK(doubles_of(outputs[5]) == a);
  }
}

TEST_CASE("activations and their derivatives") {
  const auto a = random_values(kCount, 3), dy = random_values(kCount, 4);
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor x = at.values(a, {kCount}, dtype), dout = at.values(dy, {kCount}, dtype);
      const Tensor relu = at.empty({kCount}, dtype), drelu = at.empty({kCount}, dtype);
      const Tensor tanh = at.empty({kCount}, dtype), dtanh = at.values(dy, {kCount}, dtype);
      ops::relu(relu, x);
      ops::relu_backward(drelu, dout, x, ops::Write::set);
      ops::tanh(tanh, x);
      ops::tanh_backward(dtanh, dout, tanh, ops::Write::add);
      return std::vector{relu, drelu, tanh, dtanh};
    });
    std::vector<double> relu, drelu, tanh, dtanh;
    for (std::size_t i = 0; i < a.size(); ++i) {
      relu.push_back(a[i] > 0 ? a[i] : 0);
      drelu.push_back(a[i] > 0 ? dy[i] : 0);
      tanh.push_back(std::tanh(a[i]));
      dtanh.push_back(dy[i] + dy[i] * (1 - tanh.back() * tanh.back()));
    }
    CHECK(doubles_of(outputs[0]) == relu);
    CHECK(doubles_of(outputs[1]) == drelu);
    CHECK(distance(outputs[2], tanh) < tolerance(dtype));
    CHECK(distance(outputs[3], dtanh) < tolerance(dtype));
  }
}

TEST_CASE("sums over rows, over everything, and a row added to all rows") {
  for (const auto& shape : {Shape{300, 70}, {5, 129}, {1, 3}, {200, 64}, {0, 7}}) {
    const std::int64_t rows = shape[0], width = shape[1];
    const auto a = random_values(rows * width, 5), row = random_values(width, 6);
    for (const DType dtype : kFloating) {
      const auto outputs = run_everywhere([&](const Placement& at) {
        const Tensor in = at.values(a, {rows, width}, dtype);
        const Tensor set = at.empty({width}, dtype), add = at.values(row, {width}, dtype);
        const Tensor all = at.empty({1}, dtype);
        ops::sum_rows(set, in, ops::Write::set);
        ops::sum_rows(add, in, ops::Write::add);
        ops::sum(all, in);
        ops::add_row(in, at.values(row, {width}, dtype));
        return std::vector{set, add, all, in};
      });
      std::vector<double> set(row.size(), 0), add = row, shifted = a;
      double all = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        set[i % row.size()] += a[i];
        add[i % row.size()] += a[i];
        shifted[i] += row[i % row.size()];
        all += a[i];
      }
      CHECK(distance(outputs[0], set) < tolerance(dtype));
      CHECK(distance(outputs[1], add) < tolerance(dtype));
      CHECK(std::abs(doubles_of(outputs[2])[0] - all) < 100 * tolerance(dtype));
      CHECK(distance(outputs[3], shifted) < tolerance(dtype));
    }
  }
}

TEST_CASE("comparisons look at bits and at every element") {
  Context context({.threads = 2});
  const ContextScope scope(context);
  const Tensor a = Tensor::zeros({100001}), b = Tensor::zeros({100001});
  CHECK(ops::equal_bits(a, b));
  b.data<float>()[100000] = -0.0f;
  CHECK_FALSE(ops::equal_bits(a, b));
  for (const std::int64_t i : {0, 70000, 100000}) {
    ops::fill(a, 1);
    CHECK(ops::all_finite(a));
    a.data<float>()[i] = INFINITY;
    CHECK_FALSE(ops::all_finite(a));
    a.data<float>()[i] = NAN;
    CHECK_FALSE(ops::all_finite(a));
    CHECK(ops::equal_bits(a, a));
  }
}

TEST_CASE("elementwise kernels name the operand that does not fit") {
  const Tensor a = Tensor::zeros({4}), b = Tensor::zeros({5});
  CHECK(message_of<Error>([&] { ops::add(a, a, b); }) == "add: b has shape (5), expected (4)");
  CHECK_THROWS_AS(ops::add(a, a, Tensor::zeros({4}, DType::float64)), Error);
  CHECK_THROWS_AS(ops::add(a, a, Tensor()), Error);
  CHECK_THROWS_AS(ops::add(a, a, Tensor::empty({4}, DType::float32, kMeta)), Error);
  CHECK_THROWS_AS(ops::scale(Tensor::zeros({4, 2}).transpose(0, 1), 2), Error);
  CHECK_THROWS_AS(ops::scale(Tensor::zeros({4}, DType::int64), 2), Error);
}
