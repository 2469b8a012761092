// The table of functions.h: what each function keeps, and what its backward allocates.
#include "check_gradients.h"

#include "autograd/backward.h"
#include "autograd/node.h"
#include "device/context.h"

#include <optional>

namespace fsdp {

namespace {

constexpr std::int64_t kFloat = 4;

/// A context of its own, so that only the bytes of this test are counted.
struct Meter {
  Context context;
  ContextScope scope{context};
  std::int64_t scratch = 0;  // of the thread pool, counted when it is first used

  Meter() {
    context.pool();
    scratch = context.tracker().current().total();
  }
  Breakdown now() {
    Breakdown now = context.tracker().current();
    now[MemoryKind::temp] -= scratch;
    return now;
  }
  std::int64_t peak() { return (context.tracker().peak_total() - scratch) / kFloat; }
  std::int64_t activations() { return now()[MemoryKind::activation] / kFloat; }
  std::int64_t total() { return now().total() / kFloat; }
};

Tensor filled(Shape shape, MemoryKind kind = MemoryKind::unsharded_param) {
  const AllocationScope scope(kind);
  const Tensor tensor = Tensor::empty(std::move(shape));
  ops::fill(tensor, 0.25);
  return tensor;
}
/// A leaf whose gradient has its place already, as parameters have under FSDP.
Variable parameter(Shape shape) {
  Variable leaf(filled(shape), true);
  leaf.set_grad_buffer(filled(shape, MemoryKind::unsharded_grad));
  return leaf;
}
/// A result (not a leaf) with as many elements, made by a node that keeps nothing.
Variable result(const Variable& leaf) { return scale(leaf, 1); }

/// Runs backward from `y` with a gradient of its size. What is alive when y's node starts is
/// weighed in the frame's before_first; returns the peak over that until the node has run.
std::int64_t backward_peak(Meter& meter, const std::function<Variable()>& make) {
  std::int64_t at_start = 0, peak = 0;
  auto frame = std::make_shared<CallFrame>();
  frame->before_first = [&] {
    meter.context.tracker().reset_peak();
    at_start = meter.total();
  };
  frame->after_last = [&] { peak = meter.peak() - at_start; };
  Variable loss;
  {
    Variable y;
    {
      const CallFrameScope scope(frame);
      y = make();
    }
    loss = y.data().numel() == 1 ? y : sum(y);
  }
  loss.backward();
  return peak;
}

}  // namespace

TEST_CASE("linear keeps its input, in backward the input goes before its gradient comes") {
  Meter meter;
  const Variable leaf = parameter({6, 4}), w = parameter({5, 4});
  {
    const Variable y = linear(result(leaf), w);
    CHECK(meter.activations() == 6 * 4 + 6 * 5);
  }
  CHECK(meter.activations() == 0);
  std::optional<Variable> x;
  CHECK(backward_peak(meter, [&] { return linear(result(leaf), w); }) == 0);
  CHECK(backward_peak(meter, [&] {
          x = result(leaf);
          return linear(*x, w);
        }) == 6 * 4);
}

TEST_CASE("three projections of one input share its gradient") {
  Meter meter;
  const Variable leaf = parameter({6, 4});
  const Variable a = parameter({4, 4}), b = parameter({4, 4}), c = parameter({4, 4});
  std::int64_t before = 0;
  const Variable loss = [&] {
    const Variable x = result(leaf);
    return sum(add(linear(x, a), add(linear(x, b), linear(x, c))));
  }();
  before = meter.total();
  CHECK(before == 2 * (6 * 4 + 3 * 16) + 6 * 4 + 1);
  meter.context.tracker().reset_peak();
  loss.backward();
  // x, d(sum) shared by all three products, and the one dx.
  CHECK(meter.peak() - before == 2 * 6 * 4);
}

TEST_CASE("embedding keeps nothing and allocates nothing in backward") {
  Meter meter;
  const Tensor tokens = int_tensor({1, 2, 0}, {3});
  const Variable table = parameter({7, 4});
  const std::int64_t before = meter.activations();
  const Variable y = embedding(table, tokens);
  CHECK(meter.activations() - before == 3 * 4);
  CHECK(backward_peak(meter, [&] { return embedding(table, tokens); }) == 0);
}

TEST_CASE("rms_norm keeps its input and one number a row") {
  Meter meter;
  const Variable leaf = parameter({6, 8}), w = parameter({8});
  {
    const Variable y = rms_norm(result(leaf), w, 1e-5);
    CHECK(meter.activations() == 2 * 6 * 8 + 6);
  }
  CHECK(backward_peak(meter, [&] { return rms_norm(result(leaf), w, 1e-5); }) == 6 * 8);
}

TEST_CASE("rope_attention keeps q, k, v, its result and one number a row and head") {
  Meter meter;
  const std::int64_t b = 2, t = 4, h = 4, g = 2, d = 4;
  const Variable q = parameter({b, t, h * d}), kv = parameter({b, t, g * d});
  const Tensor cos = filled({t, d / 2}), sin = filled({t, d / 2});
  auto run = [&] {
    return rope_attention(result(q), result(kv), result(kv), static_cast<int>(h),
                          static_cast<int>(g), cos, sin);
  };
  {
    const Variable y = run();
    CHECK(meter.activations() == 2 * b * t * h * d + 2 * b * t * g * d + b * h * t);
  }
  CHECK(backward_peak(meter, run) == b * t * h * d + 2 * b * t * g * d);
  CHECK(meter.now()[MemoryKind::temp] == 0);
}

TEST_CASE("swiglu keeps both inputs and writes their gradients over them") {
  Meter meter;
  const Variable a = parameter({6, 8}), b = parameter({6, 8});
  {
    const Variable y = swiglu(result(a), result(b));
    CHECK(meter.activations() == 3 * 6 * 8);
  }
  CHECK(backward_peak(meter, [&] { return swiglu(result(a), result(b)); }) == 0);
  Variable gate;
  CHECK(backward_peak(meter, [&] { return swiglu(gate = result(a), result(b)); }) == 6 * 8);
}

TEST_CASE("add keeps nothing: the sum lies in the operand given up, the gradient is shared") {
  Meter meter;
  const Variable a = parameter({6, 8}), b = parameter({6, 8});
  {
    const Variable y = add(a, result(b));
    CHECK(meter.activations() == 6 * 8);
  }
  CHECK(backward_peak(meter, [&] { return add(a, result(b)); }) == 0);
}

TEST_CASE("cross_entropy writes its gradient over logits that were given up, in forward") {
  Meter meter;
  const Variable leaf = parameter({6, 9});
  const Tensor targets = int_tensor({0, 1, 2, 3, 4, 8}, {6});
  const std::int64_t before = meter.activations();
  {
    const Variable loss = cross_entropy(result(leaf), targets);
    CHECK(meter.activations() - before == 6 * 9 + 1);
    const Breakdown kinds = meter.now();
    CHECK(kinds[MemoryKind::temp] == 0);
  }
  CHECK(backward_peak(meter, [&] { return cross_entropy(result(leaf), targets); }) == 0);

  SECTION("also in one expression") {
    meter.context.tracker().reset_peak();
    cross_entropy(result(leaf), targets).backward();
    CHECK(meter.peak() - meter.total() == 6 * 9 + 6 + 1);
  }
  SECTION("logits that are held are left alone") {
    Variable logits;
    const Variable loss = cross_entropy(logits = result(leaf), targets);
    CHECK(meter.activations() - before == 2 * 6 * 9 + 1);
    CHECK(backward_peak(meter, [&] { return cross_entropy(logits = result(leaf), targets); }) == 0);
  }
}

TEST_CASE("bytes that become a gradient count as TEMP") {
  Meter meter;
  const Variable a = parameter({6, 8}), b = parameter({6, 8});
  std::vector<std::int64_t> temp;
  auto look = [&](const Variable&) { temp.push_back(meter.now()[MemoryKind::temp] / kFloat); };
  Variable(b).register_post_accumulate_grad_hook(look);
  Variable(a).register_post_accumulate_grad_hook(look);
  const Variable gate = result(a);
  const Variable loss = sum(swiglu(scale(gate, 1), result(b)));
  CHECK(meter.now()[MemoryKind::temp] == 0);
  loss.backward();
  CHECK(temp == std::vector<std::int64_t>{48, 0});  // at b's hook dgate waits; at a's nothing does
  CHECK(meter.now()[MemoryKind::temp] == 0);
}

TEST_CASE("activations go as backward proceeds, and none is left behind") {
  Meter meter;
  const Variable x = parameter({4, 4});
  constexpr int kDepth = 5;
  std::vector<std::int64_t> alive;
  Variable loss;
  {
    Variable y = x;
    for (int i = 0; i < kDepth; ++i) {
      auto frame = std::make_shared<CallFrame>();
      frame->after_last = [&] { alive.push_back(meter.activations()); };
      const CallFrameScope scope(frame);
      y = tanh(y);
    }
    loss = sum(y);
  }
  CHECK(meter.activations() == kDepth * 16 + 1);
  loss.backward();
  CHECK(alive == std::vector<std::int64_t>{65, 49, 33, 17, 1});
  CHECK(meter.now()[MemoryKind::temp] == 0);
}

TEST_CASE("a saved weight is a view: its bytes may go and come back before backward") {
  auto storage = std::make_shared<Storage>(kCpu, 2 * 2 * sizeof(float), MemoryKind::unsharded_param,
                                           std::make_shared<const Owner>(Owner{"blocks.0", "w"}));
  const Tensor view = Tensor::view_of(storage, 0, {2, 2}, DType::float32);
  const auto refill = [&] {
    storage->allocate();
    ops::copy(view, Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}));
  };
  refill();
  Variable w(Tensor::zeros({2, 2}), true);
  w.set_data(view);
  const Variable x(Tensor::from(std::vector<float>{1, 1}, {1, 2}), true);
  const Variable loss = sum(linear(x, w));
  storage->free();

  SECTION("come back") {
    refill();
    loss.backward();
    CHECK(x.grad().to_vector<float>() == std::vector<float>{4, 6});
  }
  SECTION("stay away: the error names unit and parameter") {
    const std::string message = message_of<StorageError>([&] { loss.backward(); });
    CHECK(message.find("blocks.0") != std::string::npos);
    CHECK(message.find("w") != std::string::npos);
  }
}

TEST_CASE("a frozen parameter saves nothing that only its own gradient needs") {
  Meter meter;
  const Variable leaf = parameter({6, 4});
  const auto frozen = [](Shape shape) { return Variable(filled(std::move(shape))); };
  SECTION("linear: its input goes as soon as nobody else holds it") {
    const Variable w = frozen({5, 4});
    const Variable y = linear(result(leaf), w);
    CHECK(meter.activations() == 6 * 5);
    CHECK(backward_peak(meter, [&] { return linear(result(leaf), w); }) == 6 * 4);  // dx
    const Variable bias = parameter({5});
    const Variable z = linear(result(leaf), w, bias);
    CHECK(meter.activations() == 2 * 6 * 5);
  }
  SECTION("multiply: each factor is kept for the gradient of the other") {
    const Variable y = multiply(result(leaf), frozen({6, 4}));
    CHECK(meter.activations() == 6 * 4);
    const Variable z = multiply(result(leaf), result(leaf));
    CHECK(meter.activations() == 2 * 6 * 4 + 2 * 6 * 4);
  }
  SECTION("rms_norm: the gradient of its input needs all that it keeps") {
    const Variable y = rms_norm(result(leaf), frozen({4}), 1e-5);
    CHECK(meter.activations() == 2 * 6 * 4 + 6);
  }
  SECTION("where nothing below is trained, nothing is recorded") {
    const Variable x = frozen({6, 4});
    const Variable y = linear(rms_norm(x, frozen({4}), 1e-5), frozen({5, 4}));
    CHECK_FALSE(y.requires_grad());
    CHECK(meter.activations() == 6 * 5);
  }
}

TEST_CASE("freezing a weight changes no bit of the other gradients") {
  const auto gradients = [](bool is_frozen) {
    const Context context({.seed = 3});
    Variable x(Tensor::from(std::vector<float>{1, -2, 3, 0.1F, 0.3F, -7}, {2, 3}), true);
    Variable a(Tensor::from(std::vector<float>{0.7F, 2, 3, 1, 0.9F, 1}, {2, 3}), true);
    Variable b(Tensor::from(std::vector<float>{0.3F, 1.7F}, {1, 2}), true);
    a.set_requires_grad(!is_frozen);
    sum(multiply(linear(linear(x, a), b), linear(linear(x, a), b))).backward();
    std::vector<float> all = x.grad().to_vector<float>();
    for (const float value : b.grad().to_vector<float>()) all.push_back(value);
    CHECK(a.grad().is_defined() != is_frozen);
    return all;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("without a tape nothing is kept") {
  Meter meter;
  const NoGradScope no_grad;
  const Variable a = parameter({6, 8}), w = parameter({8, 8});
  const Variable y = swiglu(linear(result(a), w), tanh(result(a)));
  CHECK(meter.activations() == 6 * 8);
}

}  // namespace fsdp
