// The order of backward: nodes, hooks, frames, callbacks, and what happens on errors.
#include "check_gradients.h"

#include "autograd/backward.h"
#include "autograd/node.h"

namespace fsdp {

namespace {

using Lines = std::vector<std::string>;
using Floats = std::vector<float>;

/// Writes its name down when its backward runs; passes the gradient on to all inputs.
class LoggingNode : public Node {
 public:
  LoggingNode(std::string name, Lines& log, std::size_t inputs)
      : name_(std::move(name)), log_(log), inputs_(inputs) {}
  std::string_view name() const override { return name_; }
  void backward(const Tensor& dout) override {
    log_.push_back(name_);
    if (name_ == "throws") fail("backward of this node fails");
    for (std::size_t i = 0; i < inputs_; ++i) pass(i, dout);
  }
  void release() override {
    if (!is_released_) log_.push_back("release " + name_);
    is_released_ = true;
  }

 private:
  std::string name_;
  Lines& log_;
  std::size_t inputs_;
  bool is_released_ = false;
};

struct Tape {
  Lines log;
  Variable node(const std::string& name, std::vector<Variable> inputs) {
    return Node::record(std::make_shared<LoggingNode>(name, log, inputs.size()), inputs,
                        Tensor::zeros({1}));
  }
  static Variable leaf() { return Variable(Tensor::zeros({1}), true); }
  /// A frame whose two moments are written down.
  std::shared_ptr<CallFrame> frame(const std::string& name) {
    auto frame = std::make_shared<CallFrame>();
    frame->before_first = [this, name] { log.push_back("begin " + name); };
    frame->after_last = [this, name] { log.push_back("end " + name); };
    return frame;
  }
  Variable hooked_leaf(const std::string& name) {
    Variable v = leaf();
    v.register_post_accumulate_grad_hook(
        [this, name](const Variable&) { log.push_back("hook " + name); });
    return v;
  }
  Lines without_releases() const {
    Lines lines;
    for (const std::string& line : log) {
      if (line.rfind("release", 0) != 0) lines.push_back(line);
    }
    return lines;
  }
};

}  // namespace

TEST_CASE("among complete nodes the one recorded last goes first") {
  Tape tape;
  const Variable x = Tape::leaf();
  const Variable a = tape.node("a", {x});
  const Variable b = tape.node("b", {a});
  const Variable c = tape.node("c", {a});
  const Variable d = tape.node("d", {b});
  const Variable root = tape.node("root", {c, d, b});
  root.backward();
  CHECK(tape.log == Lines{"root", "release root", "d", "release d", "c", "release c", "b",
                          "release b", "a", "release a"});
}

TEST_CASE("a post-accumulate hook comes once, after the last contribution and the node's release") {
  Tape tape;
  const Variable w = tape.hooked_leaf("w");
  const Variable v = tape.hooked_leaf("v");
  const Variable a = tape.node("a", {w});
  const Variable b = tape.node("b", {a, v});
  const Variable root = tape.node("root", {b, w, w});
  root.backward();
  CHECK(tape.log ==
        Lines{"root", "release root", "b", "release b", "hook v", "a", "release a", "hook w"});
  CHECK(w.grad().to_vector<float>() == Floats{3});
}

TEST_CASE("a leaf that no reachable node used has no hook call and no gradient") {
  Tape tape;
  const Variable w = tape.hooked_leaf("w");
  const Variable used = tape.hooked_leaf("used");
  const Variable aside = tape.node("aside", {w, used});
  tape.node("root", {used}).backward();
  CHECK(tape.log == Lines{"root", "release root", "hook used"});
  CHECK_FALSE(w.grad().is_defined());
}

TEST_CASE("hooks come in registration order and can be removed") {
  Lines log;
  Variable x = Tape::leaf();
  x.register_post_accumulate_grad_hook([&](const Variable&) { log.emplace_back("first"); });
  int self = -1;
  self = x.register_post_accumulate_grad_hook([&](Variable v) {
    log.emplace_back("second");
    v.remove_post_accumulate_grad_hook(self);
  });
  x.register_post_accumulate_grad_hook(
      [&](const Variable& v) { log.emplace_back(v == x ? "third" : "stranger"); });
  scale(x, 2).backward();
  scale(x, 2).backward();
  CHECK(log == Lines{"first", "second", "third", "first", "third"});
}

TEST_CASE("frames bracket their reachable nodes, hooks included, outer opens first, closes last") {
  Tape tape;
  const Variable w = tape.hooked_leaf("w");
  Variable y;
  {
    const CallFrameScope outer(tape.frame("outer"));
    Variable a;
    {
      const CallFrameScope inner(tape.frame("one"));
      a = tape.node("a", {w});
      a = tape.node("b", {a});
    }
    {
      const CallFrameScope inner(tape.frame("two"));
      y = tape.node("c", {a, w});
    }
    CHECK(CallFrameScope::current() != nullptr);
  }
  CHECK(CallFrameScope::current() == nullptr);
  tape.node("root", {y}).backward();
  CHECK(tape.without_releases() == Lines{"root", "begin outer", "begin two", "c", "end two",
                                         "begin one", "b", "a", "hook w", "end one", "end outer"});
}

TEST_CASE("a frame does not wait for nodes that backward cannot reach") {
  Tape tape;
  const Variable x = Tape::leaf();
  Variable y, unused;
  {
    const CallFrameScope frame(tape.frame("f"));
    y = tape.node("y", {x});
    unused = tape.node("unused", {y});
  }
  {
    const CallFrameScope frame(tape.frame("never"));
    unused = tape.node("unused too", {unused});
  }
  tape.node("root", {y}).backward();
  CHECK(tape.without_releases() == Lines{"root", "begin f", "y", "end f"});
}

TEST_CASE("nothing is recorded without grad, or where no input needs one") {
  Tape tape;
  const Variable x = Tape::leaf();
  {
    const NoGradScope no_grad;
    CHECK_FALSE(grad_enabled());
    CHECK(tape.node("a", {x}).is_leaf());
  }
  CHECK(grad_enabled());
  CHECK_FALSE(tape.node("b", {x.detach()}).requires_grad());
  CHECK_FALSE(tape.node("c", {x}).is_leaf());
}

TEST_CASE("backward runs without grad, in a TEMP scope, and says so") {
  bool was_enabled = true, was_inside = false;
  MemoryKind kind = MemoryKind::activation;
  const Variable x = Tape::leaf();
  Variable(x).register_post_accumulate_grad_hook([&](const Variable&) {
    was_enabled = grad_enabled();
    was_inside = in_backward();
    kind = AllocationScope::kind();
  });
  scale(x, 2).backward();
  CHECK_FALSE(was_enabled);
  CHECK(was_inside);
  CHECK(kind == MemoryKind::temp);
  CHECK(grad_enabled());
  CHECK_FALSE(in_backward());
}

TEST_CASE("callbacks run at the end, in order, those queued by a callback too") {
  Tape tape;
  const Variable x = tape.hooked_leaf("x");
  Variable(x).register_post_accumulate_grad_hook([&](const Variable&) {
    queue_backward_callback([&] {
      tape.log.emplace_back("one");
      queue_backward_callback([&] { tape.log.emplace_back("three"); });
    });
    queue_backward_callback([&] { tape.log.emplace_back("two"); });
  });
  Variable y;
  {
    const CallFrameScope frame(tape.frame("f"));
    y = tape.node("y", {x});
  }
  y.backward();
  CHECK(tape.without_releases() == Lines{"begin f", "y", "hook x", "end f", "one", "two", "three"});
  CHECK_THROWS_AS(queue_backward_callback([] {}), Error);
}

TEST_CASE("a backward inside a backward: callbacks wait for the outer one") {
  Lines log;
  const Variable x = Tape::leaf(), y = Tape::leaf();
  Variable(y).register_post_accumulate_grad_hook(
      [&](const Variable&) { queue_backward_callback([&] { log.emplace_back("callback"); }); });
  const Variable inner = scale(y, 3);
  Variable(x).register_post_accumulate_grad_hook([&](const Variable&) {
    inner.backward();
    log.emplace_back("inner is done");
  });
  scale(x, 2).backward();
  CHECK(log == Lines{"inner is done", "callback"});
  CHECK(y.grad().item() == 3);
}

TEST_CASE("a throw in backward releases every node of the tape, and the next backward works") {
  Tape tape;
  const Variable x = Tape::leaf();
  std::weak_ptr<CallFrame> frame;
  Variable root;
  {
    const auto strong = tape.frame("f");
    frame = strong;
    const CallFrameScope scope(strong);
    root = tape.node("root", {tape.node("throws", {tape.node("a", {x})})});
  }
  CHECK_THROWS_AS(root.backward(), Error);
  CHECK(std::count(tape.log.begin(), tape.log.end(), "release a") == 1);
  CHECK(std::count(tape.log.begin(), tape.log.end(), "release throws") == 1);
  CHECK(frame.expired());
  CHECK_FALSE(in_backward());
  CHECK(grad_enabled());
  CHECK_THROWS_AS(root.backward(), Error);
  scale(x, 2).backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("a throw in a hook does the same, and drops queued callbacks") {
  Tape tape;
  bool callback_ran = false;
  const Variable v = Tape::leaf();
  Variable(v).register_post_accumulate_grad_hook([&](const Variable&) {
    queue_backward_callback([&] { callback_ran = true; });
    fail("hook fails");
  });
  const Variable root = tape.node("b", {tape.node("a", {Tape::leaf()}), v});
  CHECK(message_of<Error>([&] { root.backward(); }) == "hook fails");
  CHECK(std::count(tape.log.begin(), tape.log.end(), "release a") == 1);
  CHECK_FALSE(callback_ran);
}

TEST_CASE("what backward() refuses") {
  const Variable x = Tape::leaf();
  const Variable y = scale(x, 2);
  y.backward();
  CHECK(message_of<Error>([&] { y.backward(); }).find("already used") != std::string::npos);
  const Variable again = scale(y, 2);
  CHECK_THROWS_AS(again.backward(), Error);
  CHECK_THROWS_AS(x.backward(), Error);
  CHECK_THROWS_AS(x.detach().backward(), Error);
  CHECK_THROWS_AS(Variable().backward(), Error);
  CHECK(message_of<Error>([&] {
          scale(Variable(Tensor::zeros({3}), true), 1).backward();
        }).find("(3)") != std::string::npos);
}

TEST_CASE("a node that forgets an input, or contributes twice, is named") {
  struct Careless : Node {
    explicit Careless(int contributions) : contributions_(contributions) {}
    std::string_view name() const override { return "careless"; }
    void backward(const Tensor& dout) override {
      for (int i = 0; i < contributions_; ++i) pass(0, dout);
    }
    void release() override {}
    int contributions_;
  };
  const int contributions = GENERATE(0, 2);
  const Variable y =
      Node::record(std::make_shared<Careless>(contributions), {Tape::leaf()}, Tensor::zeros({1}));
  CHECK(message_of<Error>([&] { y.backward(); }).find("careless") != std::string::npos);
}

TEST_CASE("leaves only: requires_grad, hooks, buffers, integers have no gradient") {
  const Variable y = scale(Tape::leaf(), 2);
  CHECK_THROWS_AS(Variable(y).set_requires_grad(false), Error);
  CHECK_THROWS_AS(Variable(y).register_post_accumulate_grad_hook([](const Variable&) {}), Error);
  CHECK_THROWS_AS(Variable(y).set_grad_buffer(Tensor::zeros({1})), Error);
  CHECK_THROWS_AS(Variable(int_tensor({1}, {1}), true), Error);
  CHECK_THROWS_AS(Variable(Tensor()), Error);
}

TEST_CASE("a tape of 200,000 nodes neither runs nor dies by recursion") {
  const bool run = GENERATE(true, false);
  const Variable x = Tape::leaf();
  {
    Variable y = scale(x, 1);
    for (int i = 0; i < (FSDP_SANITIZED ? 50000 : 200000); ++i) y = reshape(y, {1});
    if (run) y.backward();
  }
  CHECK(x.grad().is_defined() == run);
}

}  // namespace fsdp
