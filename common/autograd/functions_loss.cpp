#include "autograd/functions.h"
#include "autograd/node.h"
#include "autograd/rows.h"

#include <utility>

namespace fsdp {

namespace {

class CrossEntropyNode : public Node {
 public:
  CrossEntropyNode(Tensor logits, Tensor targets, Tensor lse)
      : logits_(std::move(logits)), targets_(std::move(targets)), lse_(std::move(lse)) {}
  std::string_view name() const override { return "cross_entropy"; }
  void backward(const Tensor& dout) override {
    const Tensor dlogits = over_or_fresh(logits_);
    ops::cross_entropy_backward(dlogits, dout, logits_, targets_, lse_);
    logits_ = {};  // so that a gradient in its bytes has one holder
    pass(0, dlogits);
  }
  void release() override { logits_ = targets_ = lse_ = {}; }

 private:
  Tensor logits_;   // (R, V)
  Tensor targets_;  // (R)
  Tensor lse_;      // (R)
};

class MseNode : public Node {
 public:
  explicit MseNode(Tensor difference) : difference_(std::move(difference)) {}
  std::string_view name() const override { return "mse_loss"; }
  void backward(const Tensor& dout) override {
    ops::scale_by(difference_, dout, 2, static_cast<double>(difference_.numel()));
    difference_.storage()->recategorize(MemoryKind::temp);
    const Tensor dx = std::exchange(difference_, {});
    pass(0, dx);
  }
  void release() override { difference_ = {}; }

 private:
  Tensor difference_;
};

}  // namespace

Variable cross_entropy(Variable logits, const Tensor& targets) {
  const Tensor rows = as_rows(logits.data());
  FSDP_CHECK(targets.numel() == rows.size(0) && targets.dtype() == DType::int32,
             "cross_entropy: {} rows of logits need the same number of int32 targets, got {} {}",
             rows.size(0), name_of(targets.dtype()), to_string(targets.shape()));
  const Tensor flat = targets.view({targets.numel()});
  const Tensor loss = Tensor::empty({1}, wide_of(rows.dtype()), rows.device());
  const Tensor lse = Tensor::empty({rows.size(0)}, wide_of(rows.dtype()), rows.device());
  ops::cross_entropy(loss, lse, rows, flat);
  // Moved from: a parameter of this function lives on in the caller's expression, and
  // cross_entropy(model(x), y).backward() is one expression.
  return Node::record(std::make_shared<CrossEntropyNode>(rows, flat, lse), {std::move(logits)},
                      loss);
}

Variable mse_loss(const Variable& x, const Tensor& y) {
  FSDP_CHECK(x.shape() == y.shape(), "mse_loss: shapes {} and {} differ", to_string(x.shape()),
             to_string(y.shape()));
  const Tensor difference = empty_like(y);
  ops::copy(difference, y);
  ops::scale(difference, -1);
  ops::add(difference, difference, x.data());
  const Tensor loss = Tensor::empty({1}, wide_of(y.dtype()), y.device());
  {
    const Tensor squares = empty_like(y);
    ops::multiply(squares, difference, difference);
    ops::sum(loss, squares);
  }
  ops::scale(loss, 1 / static_cast<double>(y.numel()));
  return Node::record(std::make_shared<MseNode>(difference), {x}, loss);
}

}  // namespace fsdp
