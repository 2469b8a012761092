#include "autograd/deferred_sum.h"
#include "autograd/functions.h"
#include "autograd/node.h"
#include "autograd/rows.h"

#include <utility>

namespace fsdp {

namespace {

class AddNode : public Node {
 public:
  std::string_view name() const override { return "add"; }
  void backward(const Tensor& dout) override {
    pass(0, dout);
    pass(1, dout);
  }
  void release() override {}
};

class MultiplyNode : public Node {
 public:
  MultiplyNode(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) {}
  std::string_view name() const override { return "multiply"; }
  void backward(const Tensor& dout) override {
    if (const GradTarget dx = target(0)) ops::multiply(dx.tensor, dout, y_, dx.write);
    if (const GradTarget dy = target(1)) ops::multiply(dy.tensor, dout, x_, dy.write);
  }
  void release() override { x_ = y_ = {}; }

 private:
  Tensor x_, y_;
};

class ReluNode : public Node {
 public:
  explicit ReluNode(Tensor x) : x_(std::move(x)) {}
  std::string_view name() const override { return "relu"; }
  void backward(const Tensor& dout) override {
    const GradTarget dx = target(0);
    ops::relu_backward(dx.tensor, dout, x_, dx.write);
  }
  void release() override { x_ = {}; }

 private:
  Tensor x_;
};

class TanhNode : public Node {
 public:
  explicit TanhNode(Tensor out) : out_(std::move(out)) {}
  std::string_view name() const override { return "tanh"; }
  void backward(const Tensor& dout) override {
    const GradTarget dx = target(0);
    ops::tanh_backward(dx.tensor, dout, out_, dx.write);
  }
  void release() override { out_ = {}; }

 private:
  Tensor out_;
};

class ScaleNode : public Node {
 public:
  explicit ScaleNode(double factor) : factor_(factor) {}
  std::string_view name() const override { return "scale"; }
  void backward(const Tensor& dout) override {
    const Tensor dx = is_sole_holder(dout) ? dout : empty_like(dout);
    if (dx.storage() != dout.storage()) ops::copy(dx, dout);
    ops::scale(dx, factor_);
    pass(0, dx);
  }
  void release() override {}

 private:
  double factor_;
};

class SumNode : public Node {
 public:
  explicit SumNode(const Tensor& x) : shape_(x.shape()), dtype_(x.dtype()) {}
  std::string_view name() const override { return "sum"; }
  void backward(const Tensor& dout) override {
    const Tensor dx = Tensor::empty(shape_, dtype_, dout.device());
    ops::fill_with(dx, dout);
    pass(0, dx);
  }
  void release() override {}

 private:
  Shape shape_;
  DType dtype_;
};

class ReshapeNode : public Node {
 public:
  std::string_view name() const override { return "reshape"; }
  void backward(const Tensor& dout) override { pass(0, dout); }
  void release() override {}
};

thread_local DeferredSum* innermost_sum = nullptr;

void check_same_shape(std::string_view function, const Variable& x, const Variable& y) {
  FSDP_CHECK(x.shape() == y.shape(), "{}: shapes {} and {} differ", function, to_string(x.shape()),
             to_string(y.shape()));
}

}  // namespace

DeferredSum::DeferredSum(const Variable& x, Variable y) : outer_(innermost_sum) {
  check_same_shape("add", x, y);
  const Tensor out = is_given_up(y) ? y.data() : empty_like(x.data());
  terms_ = Terms{x.data(), y.data()};
  sum_ = Node::record(std::make_shared<AddNode>(), {x, std::move(y)}, out);
  innermost_sum = this;
}

DeferredSum::~DeferredSum() { innermost_sum = outer_; }

DeferredSum* DeferredSum::pending(const Tensor& x) {
  DeferredSum* each = innermost_sum;
  while (each != nullptr && each->sum_.data().storage() != x.storage()) each = each->outer_;
  return each;
}

std::optional<DeferredSum::Terms> DeferredSum::take(const Tensor& rows) {
  DeferredSum* const sum = pending(rows);
  if (sum == nullptr) return std::nullopt;
  const Tensor& own = sum->sum_.data();
  const bool is_whole = own.numel() == rows.numel() && own.size(-1) == rows.size(-1);
  if (!is_whole) sum->finish();
  return std::exchange(sum->terms_, std::nullopt);
}

void DeferredSum::settle(const Tensor& x) {
  if (DeferredSum* const sum = pending(x)) sum->finish();
}

const Variable& DeferredSum::finish() {
  if (const auto terms = std::exchange(terms_, std::nullopt))
    ops::add(sum_.data(), terms->x, terms->y);
  return sum_;
}

Variable add(const Variable& x, Variable y) { return DeferredSum(x, std::move(y)).finish(); }

Variable multiply(const Variable& x, const Variable& y) {
  check_same_shape("multiply", x, y);
  const Tensor out = empty_like(x.data());
  ops::multiply(out, x.data(), y.data());
  // Each is kept for the gradient of the other.
  const Tensor saved_x = y.requires_grad() ? x.data() : Tensor();
  const Tensor saved_y = x.requires_grad() ? y.data() : Tensor();
  return Node::record(std::make_shared<MultiplyNode>(saved_x, saved_y), {x, y}, out);
}

Variable relu(const Variable& x) {
  const Tensor out = empty_like(x.data());
  ops::relu(out, x.data());
  return Node::record(std::make_shared<ReluNode>(x.data()), {x}, out);
}

Variable tanh(const Variable& x) {
  const Tensor out = empty_like(x.data());
  ops::tanh(out, x.data());
  return Node::record(std::make_shared<TanhNode>(out), {x}, out);
}

Variable scale(const Variable& x, double factor) {
  const Tensor out = empty_like(x.data());
  ops::copy(out, x.data());
  ops::scale(out, factor);
  return Node::record(std::make_shared<ScaleNode>(factor), {x}, out);
}

Variable sum(const Variable& x) {
  const Tensor out = Tensor::empty({1}, wide_of(x.data().dtype()), x.data().device());
  ops::sum(out, x.data());
  return Node::record(std::make_shared<SumNode>(x.data()), {x}, out);
}

Variable reshape(const Variable& x, Shape shape) {
  return Node::record(std::make_shared<ReshapeNode>(), {x}, x.data().view(std::move(shape)));
}

}  // namespace fsdp
