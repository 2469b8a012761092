// Functions that do in one pass over memory what two would do apart.
#include "autograd/deferred_sum.h"
#include "check_gradients.h"

#include <cmath>
#include <memory>
#include <vector>

namespace fsdp {
namespace {

Tensor in_format(const Tensor& x, DType dtype) {
  const Tensor converted = Tensor::empty(x.shape(), dtype);
  ops::copy(converted, x);
  return converted;
}

struct Results {
  Tensor sum, normed, dx, dy, dw;
};

/// Of (x + y) and its norm, both of which the loss reads.
Results sum_and_norm(DType dtype, bool is_deferred) {
  const auto leaf = [&](const Shape& shape, std::uint64_t seed) {
    return Variable(in_format(random_tensor(shape, seed), dtype), true);
  };
  const Variable x = leaf({3, 2, 37}, 1), y = leaf({3, 2, 37}, 2), w = leaf({37}, 3);
  const Tensor rows = in_format(random_tensor({3, 2, 37}, 4), dtype);
  Variable total, normed;
  if (is_deferred) {
    DeferredSum both(x, scale(y, 1));
    normed = rms_norm(both.result(), w, 1e-5);
    total = both.finish();
  } else {
    total = add(x, scale(y, 1));
    normed = rms_norm(total, w, 1e-5);
  }
  sum(multiply(add(total, Variable(normed)), Variable(rows))).backward();
  return {total.data(), normed.data(), x.grad(), y.grad(), w.grad()};
}

}  // namespace

TEST_CASE("a deferred sum and its norm have the bits, and gradients, of two functions") {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
    INFO(name_of(dtype));
    const Results apart = sum_and_norm(dtype, false), together = sum_and_norm(dtype, true);
    CHECK(ops::equal_bits(together.sum, apart.sum));
    CHECK(ops::equal_bits(together.normed, apart.normed));
    CHECK(ops::equal_bits(together.dx, apart.dx));
    CHECK(ops::equal_bits(together.dy, apart.dy));
    CHECK(ops::equal_bits(together.dw, apart.dw));
  }
}

TEST_CASE("a deferred sum is computed once: by a norm of it, or by finish()") {
  const Variable x(Tensor::from(std::vector<float>{1, 2}, {1, 2}));
  const Variable w(Tensor::from(std::vector<float>{1, 1}, {2}));
  const auto fresh = [] { return Variable(Tensor::from(std::vector<float>{10, 20}, {1, 2})); };
  const auto elements = [](const Variable& v) { return v.data().to_vector<float>(); };
  SECTION("by finish(), over the operand that was given up") {
    DeferredSum both(x, fresh());
    CHECK(elements(both.result()) == std::vector<float>{10, 20});
    CHECK(elements(both.finish()) == std::vector<float>{11, 22});
    CHECK(elements(both.finish()) == std::vector<float>{11, 22});
  }
  SECTION("by the norm of it, and of nothing else") {
    DeferredSum outer(x, fresh());
    DeferredSum both(x, fresh());
    rms_norm(x, w, 0);
    CHECK(elements(both.result()) == std::vector<float>{10, 20});
    const Variable first = rms_norm(both.result(), w, 0);
    CHECK(elements(both.result()) == std::vector<float>{11, 22});
    CHECK(elements(outer.result()) == std::vector<float>{10, 20});
    CHECK(elements(rms_norm(both.result(), w, 0)) == elements(first));
    CHECK(elements(both.finish()) == std::vector<float>{11, 22});
    rms_norm(outer.result(), w, 0);
    CHECK(elements(outer.result()) == std::vector<float>{11, 22});
  }
  SECTION("not at all if its terms differ in shape") {
    CHECK_THROWS_AS(DeferredSum(x, Variable(Tensor::zeros({2, 1}))), Error);
    rms_norm(x, w, 0);
  }
  SECTION("before a norm of some of its rows, or of other rows") {
    DeferredSum both(x, fresh());
    const Variable w_of_one(Tensor::from(std::vector<float>{3}, {1}));
    CHECK(elements(rms_norm(reshape(both.result(), {2, 1}), w_of_one, 0)) ==
          std::vector<float>{3, 3});
    CHECK(elements(both.result()) == std::vector<float>{11, 22});
  }
  SECTION("by who else asks for it") {
    DeferredSum both(x, fresh());
    DeferredSum::settle(x.data());
    CHECK(elements(both.result()) == std::vector<float>{10, 20});
    DeferredSum::settle(both.result().data());
    CHECK(elements(both.finish()) == std::vector<float>{11, 22});
  }
  SECTION("not by a norm after its end") {
    Variable left;
    {
      DeferredSum both(x, fresh());
      left = both.result();
    }
    rms_norm(left, w, 0);
    CHECK(elements(left) == std::vector<float>{10, 20});
  }
}

TEST_CASE("cross_entropy makes the gradient for what backward begins with") {
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{0, 6, 3}, {3});
  const Tensor values = in_format(random_tensor({3, 7}, 1), DType::float32);
  const auto gradient = [&](std::optional<double> expected, double start) {
    const Variable leaf(values, true);
    cross_entropy(scale(leaf, 1), targets, expected).backward(start);
    return leaf.grad();
  };
  const double start = 1.3;
  const Tensor losses = Tensor::empty({3}), loss = Tensor::empty({1});
  const Tensor exact = Tensor::empty({3, 7});
  ops::cross_entropy(loss, losses, values, targets, exact, start);
  CHECK(ops::equal_bits(gradient(start, start), exact));
  // Another one is a pass that rounds once more; a power of two does not round.
  const std::vector<float> rounded = gradient({}, start).to_vector<float>();
  const std::vector<float> once = exact.to_vector<float>();
  for (std::size_t i = 0; i < once.size(); ++i) {
    CHECK(std::abs(rounded[i] - once[i]) <= 0x1p-22F * std::abs(once[i]));
  }
  CHECK(ops::equal_bits(gradient({}, 8), gradient(8, 8)));
  for (const double wrong : {0.0, 1e-50, 1e50}) {
    CHECK_THAT(message_of<Error>([&] { gradient(wrong, 1); }),
               contains("must be finite and not 0"));
  }
}

TEST_CASE("cross_entropy without a tape makes no gradient") {
  Context context;
  const ContextScope scope(context);
  const Variable logits(random_tensor({6, 50}, 1), true);
  const Tensor targets = Tensor::from(std::vector<std::int32_t>(6, 3), {6});
  const auto peak_of = [&](const auto& call) {
    context.tracker().reset_peak();
    const std::int64_t before = context.tracker().current().total();
    const Variable loss = call();
    return context.tracker().peak().total() - before;
  };
  const auto loss_of = [&] { return cross_entropy(Variable(logits), targets); };
  CHECK(peak_of(loss_of) >= 8 * 6 * 50);
  CHECK(peak_of([&] { return cross_entropy(logits.detach(), targets); }) < 8 * 6 * 50);
  const NoGradScope no_grad;
  CHECK(peak_of(loss_of) < 8 * 6 * 50);
}

// e^-18 is 1.5e-8: less than float16 can hold, but not 2^16 times that.
TEST_CASE("cross_entropy in float16 keeps what the scale of a loss will save") {
  std::vector<float> logits(8, -18);
  logits[0] = 0;
  const Variable leaf(in_format(Tensor::from(logits, {1, 8}), DType::float16), true);
  const Tensor target = Tensor::from(std::vector<std::int32_t>{0}, {1});
  cross_entropy(scale(leaf, 1), target).backward(65536);
  const Tensor wide = in_format(leaf.grad(), DType::float32);
  const std::vector<float> found = wide.to_vector<float>();
  for (std::size_t i = 1; i < found.size(); ++i) {
    CHECK(std::abs(found[i] / (65536 * std::exp(-18.0F)) - 1) < 1e-2);
  }
}

}  // namespace fsdp
