#include "autograd/functions.h"
#include "autograd/node.h"
#include "autograd/rows.h"

#include <cmath>
#include <utility>

namespace fsdp {

namespace {

/// A loss whose forward has made the gradient of its input, but for a factor.
class LossNode : public Node {
 public:
  /// The gradient is `gradient` · times / over · that of the loss, which will mostly be `expected`.
  LossNode(std::string_view name, Tensor gradient, double times, double over, double expected)
      : name_(name),
        gradient_(std::move(gradient)),
        times_(times),
        over_(over),
        expected_(expected) {}
  std::string_view name() const override { return name_; }
  void backward(const Tensor& dout) override {
    if (dout.device().has_data()) {
      ops::scale_by(gradient_, dout, times_, over_);
    } else {
      ops::scale(gradient_, expected_ * times_ / over_);
    }
    gradient_.storage()->recategorize(MemoryKind::temp);
    const Tensor dx = std::exchange(gradient_, {});
    pass(0, dx);
  }
  void release() override { gradient_ = {}; }

 private:
  std::string_view name_;  // a literal
  Tensor gradient_;
  double times_, over_, expected_;
};

/// The gradient of a loss that is expected if nobody names one. In float16, one that keeps most of
/// the gradients before it above zero.
double usual_gradient(DType dtype) { return dtype == DType::float16 ? 0x1p15 : 1; }

}  // namespace

Variable cross_entropy(Variable logits, const Tensor& targets, std::optional<double> gradient) {
  const bool is_ours = is_given_up(logits);
  const bool with_gradient = grad_enabled() && logits.requires_grad();
  const Tensor rows = as_rows(logits.data());
  FSDP_CHECK(targets.numel() == rows.size(0) && targets.dtype() == DType::int32,
             "cross_entropy: {} rows of logits need the same number of int32 targets, got {} {}",
             rows.size(0), name_of(targets.dtype()), to_string(targets.shape()));
  const Tensor flat = targets.view({targets.numel()});
  const Tensor loss = Tensor::empty({1}, wide_of(rows.dtype()), rows.device());
  const Tensor losses = Tensor::empty({rows.size(0)}, wide_of(rows.dtype()), rows.device());
  Tensor dlogits;
  if (with_gradient) dlogits = is_ours ? rows : empty_like(rows);
  double dloss = gradient.value_or(usual_gradient(rows.dtype()));
  if (loss.dtype() == DType::float32) dloss = static_cast<float>(dloss);  // as backward() rounds it
  FSDP_CHECK(dloss != 0 && std::isfinite(dloss),
             "cross_entropy: the gradient of the loss is expected to be {}, but it must be finite "
             "and not 0",
             *gradient);
  ops::cross_entropy(loss, losses, rows, flat, dlogits, dloss);
  // Moved from: a parameter of this function lives on in the caller's expression, and
  // cross_entropy(model(x), y).backward() is one expression.
  auto node = std::make_shared<LossNode>("cross_entropy", std::move(dlogits), 1, dloss, dloss);
  return Node::record(std::move(node), {std::move(logits)}, loss);
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
  const auto n = static_cast<double>(y.numel());
  return Node::record(std::make_shared<LossNode>("mse_loss", difference, 2, n, 1), {x}, loss);
}

}  // namespace fsdp
