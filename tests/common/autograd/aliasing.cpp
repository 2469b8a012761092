// Gradients that share bytes on their way: who may write where.
#include "check_gradients.h"

namespace fsdp {

namespace {

Variable leaf(std::vector<float> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Variable(Tensor::from(values, {n}), true);
}
std::vector<float> grad_of(const Variable& v) { return v.grad().to_vector<float>(); }
std::vector<float> value_of(const Variable& v) { return v.data().to_vector<float>(); }
using Floats = std::vector<float>;

}  // namespace

TEST_CASE("x + x doubles the gradient, for leaves and for results") {
  const Variable x = leaf({1, 2, 3});
  sum(add(x, x)).backward();
  CHECK(grad_of(x) == Floats{2, 2, 2});

  const Variable y = leaf({1, 2, 3});
  const Variable z = scale(y, 3);
  sum(add(z, z)).backward();
  CHECK(grad_of(y) == Floats{6, 6, 6});
  CHECK(value_of(z) == Floats{3, 6, 9});
}

TEST_CASE("x * x uses both contributions") {
  const Variable x = leaf({1, 2, 3});
  sum(multiply(x, x)).backward();
  CHECK(grad_of(x) == Floats{2, 4, 6});
}

TEST_CASE("a chain of doublings: every gradient is shared, then needed apart") {
  const Variable x = leaf({1, -1});
  Variable y = scale(x, 1);
  for (int i = 0; i < 10; ++i) y = add(y, y);
  sum(y).backward();
  CHECK(grad_of(x) == Floats{1024, 1024});
}

TEST_CASE("a residual keeps the gradient that the branch changes") {
  // y = x + 2 (x + 3 x): dy/dx = 1 + 2 + 6
  const Variable x = leaf({1, 2});
  const Variable stream = scale(x, 1);
  const Variable inner = add(stream, scale(stream, 3));
  sum(add(stream, scale(inner, 2))).backward();
  CHECK(grad_of(x) == Floats{9, 9});
}

TEST_CASE("diamonds inside diamonds against finite differences") {
  const Variable x = random_leaf({2, 4}, 1);
  const Variable w = random_leaf({4, 4}, 2);
  check_gradients(
      [&] {
        const Variable a = linear(x, w);
        const Variable b = add(a, tanh(a));
        const Variable c = add(b, multiply(a, linear(b, w)));
        const Variable d = reshape(add(c, reshape(reshape(c, {8}), {2, 4})), {4, 2});
        const Variable e = add(d, scale(d, -0.5));
        return weigh(add(reshape(e, {2, 4}), add(a, c)));
      },
      {x, w});
}

TEST_CASE("one gradient passed to three inputs, each of which scales its own") {
  const Variable x = leaf({1});
  const Variable a = scale(x, 2), b = scale(x, 3), c = scale(x, 5);
  sum(add(a, add(b, c))).backward();
  CHECK(grad_of(x) == Floats{10});
}

TEST_CASE("add writes over an operand that was given up, and no other") {
  const Variable x = leaf({1, 2});
  Variable y = scale(x, 10);
  const Storage* bytes = y.data().storage().get();

  SECTION("a temporary is given up") {
    const Variable s = add(x, std::move(y));
    CHECK(s.data().storage().get() == bytes);
    CHECK(value_of(s) == Floats{11, 22});
  }
  SECTION("a named variable is not") {
    const Variable s = add(x, y);
    CHECK(s.data().storage().get() != bytes);
    CHECK(value_of(y) == Floats{10, 20});
  }
  SECTION("a temporary whose bytes a node saved is not") {
    const Variable t = tanh(x);
    const Floats before = value_of(t);
    const Variable s = add(x, Variable(t));
    CHECK(value_of(t) == before);
    sum(multiply(s, s)).backward();
  }
  SECTION("bytes that another view holds are not written") {
    const Tensor view = y.data().view({2, 1});
    const Variable s = add(x, std::move(y));
    CHECK(s.data().storage().get() != bytes);
    CHECK(view.to_vector<float>() == Floats{10, 20});
  }
  SECTION("a trainable leaf is not") {
    const Variable s = add(x, leaf({5, 6}));
    sum(s).backward();
    CHECK(grad_of(x) == Floats{1, 1});
  }
}

TEST_CASE("saved tensors that somebody still reads survive backward") {
  const Variable x = leaf({0.5F, -1, 2, 3});
  const Variable w = leaf({1, 2, 3, 4});
  const Variable gate = multiply(x, w);
  const Variable up = scale(x, 2);
  const Variable logits = reshape(swiglu(gate, up), {2, 2});
  const Floats gate_before = value_of(gate), up_before = value_of(up);
  const Floats logits_before = value_of(logits);
  cross_entropy(logits, int_tensor({0, 1}, {2})).backward();
  CHECK(value_of(gate) == gate_before);
  CHECK(value_of(up) == up_before);
  CHECK(value_of(logits) == logits_before);
}

TEST_CASE("the first contribution overwrites: a gradient of -0 stays -0") {
  const Variable x = leaf({1, 1});
  sum(multiply(x, Variable(Tensor::from(Floats{-0.0F, 0.0F}, {2})))).backward();
  const Floats grad = grad_of(x);
  CHECK(std::signbit(grad[0]));
  CHECK_FALSE(std::signbit(grad[1]));
}

TEST_CASE("gradients accumulate over backwards until they are forgotten") {
  Variable x = leaf({1, 2});
  sum(scale(x, 3)).backward();
  sum(scale(x, 4)).backward();
  CHECK(grad_of(x) == Floats{7, 7});
  x.set_grad({});
  CHECK_FALSE(x.grad().is_defined());
  sum(scale(x, 5)).backward();
  CHECK(grad_of(x) == Floats{5, 5});
}

}  // namespace fsdp
