// A node that records a tape in its own backward, and runs it.
#include "check_gradients.h"

#include "autograd/backward.h"
#include "autograd/node.h"

#include <bit>

namespace fsdp {

namespace {

using Floats = std::vector<float>;
using Lines = std::vector<std::string>;
using Region = std::function<Variable(const Variable& x)>;

/// Keeps x, and runs the region when its backward comes.
class LaterNode : public Node {
 public:
  LaterNode(Tensor x, Region region) : x_(std::move(x)), region_(std::move(region)) {}
  std::string_view name() const override { return "later"; }
  void backward(const Tensor& dout) override {
    Variable y;
    {
      const GradScope recording(true);
      y = region_(input(0, std::exchange(x_, {})));
    }
    fsdp::backward(std::move(y), dout);
  }
  void release() override { x_ = {}; }

 private:
  Tensor x_;
  Region region_;
};

/// region(x), whose tape is recorded now, or in backward. `weights`: all leaves that it may use.
Variable run(bool later, const Variable& x, std::vector<Variable> weights, const Region& region) {
  if (!later || !grad_enabled()) return region(x);
  Tensor y;
  {
    const NoGradScope no_grad;
    y = region(x).data();
  }
  weights.insert(weights.begin(), x);
  return Node::record(std::make_shared<LaterNode>(x.data(), region), weights, y);
}

Variable leaf_of(Shape shape, std::uint64_t seed) {
  const std::vector<double> wide = random_tensor(shape, seed).to_vector<double>();
  return Variable(Tensor::from(Floats(wide.begin(), wide.end()), shape), true);
}

/// Two regions that share a weight with each other and with what is around them, over a shared
/// input. The second uses its own weight twice, and has a region inside.
struct Shared {
  Variable x = leaf_of({3, 4}, 1), w = leaf_of({4, 4}, 2), v = leaf_of({4, 4}, 3);
  Lines log;

  void watch() {
    for (const auto& [name, leaf] :
         {std::pair<std::string, Variable>{"x", x}, {"w", w}, {"v", v}}) {
      Variable(leaf).register_post_accumulate_grad_hook(
          [this, name = name](const Variable&) { log.push_back(name); });
    }
  }
  Variable loss(bool later) {
    const Variable base = scale(x, 1.5);
    const Variable a =
        run(later, base, {w}, [&](const Variable& in) { return tanh(linear(in, w)); });
    const Variable b = run(later, base, {w, v}, [&](const Variable& in) {
      const Variable inner =
          run(later, linear(in, v), {w}, [&](const Variable& i) { return linear(tanh(i), w); });
      return add(linear(inner, v), in);
    });
    return sum(multiply(add(linear(a, w), b), add(base, x)));
  }
  std::vector<Floats> grads() const {
    return {x.grad().to_vector<float>(), w.grad().to_vector<float>(), v.grad().to_vector<float>()};
  }
};

}  // namespace

TEST_CASE("a nested tape has the gradients of finite differences") {
  const Variable x = random_leaf({3, 4}, 1), w = random_leaf({5, 4}, 2), b = random_leaf({5}, 3);
  check_gradients(
      [&] {
        return weigh(run(true, scale(x, 2), {w, b},
                         [&](const Variable& in) { return tanh(linear(tanh(in), w, b)); }));
      },
      {x, w, b});
}

TEST_CASE("a nested tape leaves the bits of one that was recorded in forward") {
  Shared flat, nested;
  for (int pass = 0; pass < 2; ++pass) {  // the second adds to the first
    flat.loss(false).backward();
    nested.loss(true).backward();
    CHECK(nested.grads() == flat.grads());
  }
}

TEST_CASE("a nested tape adds to the outer sums in the order of one tape") {
  // 1 + 2^-24 + 2^-24 depends on the order: from the left it is 1.
  const auto gradient_of = [](bool later) {
    Variable x(Tensor::from(Floats{1}, {1}), true);
    const Variable base = scale(x, 1);
    const Variable region = run(later, base, {}, [](const Variable& in) {
      return add(scale(in, 0x1p-24), scale(in, 0x1p-24));
    });
    sum(add(region, scale(base, 1))).backward();
    return x.grad().item();
  };
  CHECK(gradient_of(false) == 1);
  CHECK(gradient_of(true) == 1);
}

TEST_CASE("a first contribution of -0 stays -0 through a nested tape") {
  const Variable x(Tensor::from(Floats{1}, {1}), true), w(Tensor::from(Floats{-0.0F}, {1}), true);
  sum(run(true, x, {w}, [&](const Variable& in) { return multiply(in, w); })).backward();
  CHECK(std::signbit(x.grad().item()));
}

TEST_CASE("the hooks of a leaf come once per outer backward, after its last contribution") {
  Shared flat, nested;
  flat.watch();
  nested.watch();
  flat.loss(false).backward();
  nested.loss(true).backward();
  CHECK(flat.log == Lines{"v", "w", "x"});
  CHECK(nested.log == flat.log);
}

TEST_CASE("a hook within a nested tape comes when the gradient is complete, not at its end") {
  Lines log;
  Variable w = leaf_of({4, 4}, 1), v = leaf_of({4, 4}, 2);
  w.register_post_accumulate_grad_hook([&](const Variable&) { log.emplace_back("w"); });
  v.register_post_accumulate_grad_hook([&](const Variable&) {
    log.emplace_back("v");
    CHECK_FALSE(w.grad().is_defined());
  });
  sum(run(true, leaf_of({3, 4}, 3), {w, v}, [&](const Variable& in) {
    return linear(linear(in, w), v);
  })).backward();
  CHECK(log == Lines{"v", "w"});
}

TEST_CASE("an input that the nested tape does not use gets no gradient and no hook") {
  Lines log;
  Variable x = Variable(leaf_of({2, 2}, 1)), used = leaf_of({2, 2}, 2), unused = leaf_of({2, 2}, 3);
  for (const auto& [name, leaf] :
       {std::pair<std::string, Variable>{"x", x}, {"used", used}, {"unused", unused}}) {
    Variable(leaf).register_post_accumulate_grad_hook(
        [&, name = name](const Variable&) { log.push_back(name); });
  }
  bool opened = false;
  auto frame = std::make_shared<CallFrame>();
  frame->before_first = frame->after_last = [&] { opened = true; };
  Variable below;
  {
    const CallFrameScope scope(frame);
    below = scale(x, 2);
  }
  const Variable y =
      run(true, below, {used, unused}, [&](const Variable&) { return scale(used, 3); });
  SECTION("in a region of its own") {
    sum(y).backward();
    CHECK(log == Lines{"used"});
    CHECK_FALSE(x.grad().is_defined());
    CHECK_FALSE(unused.grad().is_defined());
    CHECK_FALSE(opened);  // the backward of what made x has not begun
  }
  SECTION("and outside of it, it gets that one") {
    sum(add(y, add(below, unused))).backward();
    CHECK(log.size() == 3);
    CHECK(x.grad().to_vector<float>() == Floats{2, 2, 2, 2});
    CHECK(unused.grad().to_vector<float>() == Floats{1, 1, 1, 1});
    CHECK(opened);
  }
}

TEST_CASE("a nested tape may be empty: its result is its input, a weight, or a constant") {
  const std::string what = GENERATE("result", "leaf", "weight", "constant");
  const Variable leaf = leaf_of({2, 2}, 1), w = leaf_of({2, 2}, 2);
  const Variable x = what == "leaf" ? leaf : scale(leaf, 3);
  const Variable y = run(true, x, {w}, [&](const Variable& in) {
    if (what == "weight") return w;
    return what == "constant" ? Variable(Tensor::zeros({2, 2})) : in;
  });
  sum(scale(y, 2)).backward();
  CHECK(w.grad().is_defined() == (what == "weight"));
  const bool reaches_leaf = what == "result" || what == "leaf";
  CHECK(leaf.grad().is_defined() == reaches_leaf);
  if (reaches_leaf) CHECK(leaf.grad().to_vector<float>()[0] == (what == "leaf" ? 2 : 6));
}

TEST_CASE("a frozen input, or a frozen weight, is left out") {
  const Variable w = leaf_of({4, 4}, 1);
  const Variable frozen(leaf_of({4, 4}, 2).data());
  sum(run(true, frozen, {w}, [&](const Variable& in) { return linear(in, w); })).backward();
  CHECK(w.grad().is_defined());
  CHECK_FALSE(frozen.grad().is_defined());
  const Variable x = leaf_of({4, 4}, 3);
  sum(run(true, x, {frozen}, [&](const Variable& in) { return linear(in, frozen); })).backward();
  CHECK(x.grad().is_defined());
  CHECK_FALSE(frozen.grad().is_defined());
  const Variable all = run(true, frozen, {frozen}, [](const Variable& in) { return tanh(in); });
  CHECK_FALSE(all.requires_grad());
}

TEST_CASE("a throw in a nested tape, or while it is recorded, leaves no tape") {
  const bool in_backward_of_it = GENERATE(false, true);
  const Variable x = leaf_of({2, 2}, 1);
  Variable w = leaf_of({2, 2}, 2);
  const auto at_start = w.data().storage().use_count();
  if (in_backward_of_it) {
    w.register_post_accumulate_grad_hook([](const Variable&) { fail("a hook fails"); });
  }
  {
    const Variable loss = sum(run(true, scale(x, 2), {w}, [&](const Variable& in) {
      const Variable y = linear(tanh(in), w);
      if (grad_enabled() && !in_backward_of_it) fail("the second forward fails");
      return y;
    }));
    CHECK_THROWS_WITH(loss.backward(), contains("fails"));
  }
  CHECK_FALSE(in_backward());
  CHECK(grad_enabled());
  CHECK(AllocationScope::kind() == MemoryKind::activation);
  CHECK(CallFrameScope::current() == nullptr);
  CHECK(w.data().storage().use_count() == at_start);  // no node holds it
  scale(sum(x), 2).backward();
}

TEST_CASE("what a nested backward refuses") {
  const Variable x = leaf_of({2, 2}, 1), other = leaf_of({2, 2}, 2);
  const auto failure = [&](const Region& region) {
    return message_of<Error>([&] { sum(run(true, scale(x, 2), {}, region)).backward(); });
  };
  SECTION("a leaf with hooks that is no input") {
    Variable(other).register_post_accumulate_grad_hook([](const Variable&) {});
    CHECK_THAT(failure([&](const Variable& in) { return multiply(in, other); }),
               contains("a leaf of shape (2, 2) that has hooks and is no input"));
  }
  SECTION("a leaf without hooks is nobody's business") {
    CHECK(failure([&](const Variable& in) { return multiply(in, other); }).empty());
    CHECK(other.grad().is_defined());
  }
  SECTION("a node of the outer tape that is no input") {
    const Variable outside = scale(x, 3);
    const Variable region =
        run(true, scale(x, 2), {}, [&](const Variable& in) { return multiply(in, outside); });
    CHECK_THROWS_WITH(sum(add(region, outside)).backward(),
                      contains("a nested backward() reached scale, a node of the tape around it"));
  }
  SECTION("a second one in the same node") {
    CHECK_THAT(failure([&](const Variable& in) {
                 if (in_backward()) {
                   fsdp::backward(scale(in, 2), Tensor::zeros({2, 2}));
                 }
                 return scale(in, 2);
               }),
               contains("later runs a second nested backward"));
  }
}

TEST_CASE("backward from a tensor of any shape") {
  const Variable x = leaf_of({2, 3}, 1);
  const Tensor gradient = Tensor::from(Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  fsdp::backward(scale(x, 2), gradient);
  CHECK(x.grad().to_vector<float>() == Floats{2, 4, 6, 8, 10, 12});
  CHECK(gradient.to_vector<float>() == Floats{1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH(fsdp::backward(scale(x, 2), Tensor::zeros({3, 2})), contains("(2, 3)"));
  CHECK_THROWS_AS(fsdp::backward(Variable(gradient), gradient), Error);
  CHECK_THROWS_AS(fsdp::backward(x, gradient), Error);
}

TEST_CASE("a scope that records, inside one that does not") {
  const Variable x = leaf_of({2, 2}, 1);
  const NoGradScope no_grad;
  CHECK_FALSE(scale(x, 2).requires_grad());
  {
    const GradScope recording(true);
    CHECK(scale(x, 2).requires_grad());
    const GradScope none(false);
    CHECK_FALSE(grad_enabled());
  }
  CHECK_FALSE(grad_enabled());
}

TEST_CASE("a nested backward holds neither the region's input, nor its output, nor its gradient") {
  Context context;
  const ContextScope scope(context);
  const Variable leaf = leaf_of({6, 4}, 1);
  const Variable x = scale(leaf, 1);
  std::weak_ptr<Storage> input, output, gradient;
  const Variable y = run(true, scale(x, 1), {}, [&](const Variable& in) {
    if (!grad_enabled()) return scale(in, 3);
    input = in.data().storage();
    auto frame = std::make_shared<CallFrame>();
    frame->after_last = [&] {  // its first node has run
      CHECK(input.expired());
      CHECK(output.expired());
      CHECK(gradient.expired());
    };
    const Variable middle = scale(in, 3);
    const CallFrameScope in_frame(frame);
    const Variable out = scale(middle, 1);
    output = out.data().storage();
    return out;
  });
  sum(add(y, scale(x, 2))).backward();
  CHECK(leaf.grad().to_vector<float>() == Floats(24, 5));
}

}  // namespace fsdp
