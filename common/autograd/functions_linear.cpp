#include "autograd/functions.h"
#include "autograd/kept_results.h"
#include "autograd/node.h"
#include "autograd/rows.h"

namespace fsdp {

using ops::Transpose;

namespace {

class LinearNode : public Node {
 public:
  LinearNode(Tensor x, Tensor weight) : x_(std::move(x)), weight_(std::move(weight)) {}
  std::string_view name() const override { return "linear"; }
  void backward(const Tensor& dout) override {
    const Tensor dout_rows = as_rows(dout);
    if (const GradTarget dw = target(1)) {
      ops::matmul(dw.tensor, dout_rows, Transpose::yes, x_, Transpose::no, dw.write);
    }
    x_ = {};  // before dx is made: the same size, so the peak does not grow
    if (wants(2)) {
      const GradTarget db = target(2);
      ops::sum_rows(db.tensor, dout_rows, db.write);
    }
    if (const GradTarget dx = target(0)) {
      ops::matmul(as_rows(dx.tensor), dout_rows, Transpose::no, weight_, Transpose::no, dx.write);
    }
  }
  void release() override { x_ = weight_ = {}; }

 private:
  Tensor x_;  // (R, in); undefined if the weight is frozen
  Tensor weight_;
};

class EmbeddingNode : public Node {
 public:
  EmbeddingNode(Tensor tokens, std::int64_t padding)
      : tokens_(std::move(tokens)), padding_(padding) {}
  std::string_view name() const override { return "embedding"; }
  void backward(const Tensor& dout) override {
    const GradTarget dtable = target(0);
    ops::embedding_backward(dtable.tensor, as_rows(dout), tokens_, dtable.write, padding_);
  }
  void release() override { tokens_ = {}; }

 private:
  Tensor tokens_;  // (R)
  std::int64_t padding_;
};

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  const Tensor& w = weight.data();
  FSDP_CHECK(w.dims() == 2 && x.data().dims() >= 1 && x.data().size(-1) == w.size(1),
             "linear: input {} does not fit weight {}", to_string(x.shape()),
             to_string(weight.shape()));
  const Tensor rows = as_rows(x.data());
  Tensor out;
  if (!KeptResults::take({&out})) {
    out = Tensor::empty(with_last(x.data(), w.size(0)), x.data().dtype(), x.data().device());
    ops::matmul(as_rows(out), rows, Transpose::no, w, Transpose::yes);
    if (bias.is_defined()) ops::add_row(as_rows(out), bias.data());
    KeptResults::keep({out});
  }
  // Only the weight's gradient needs x, and a frozen weight has none.
  const Tensor saved = weight.requires_grad() ? rows : Tensor();
  return Node::record(std::make_shared<LinearNode>(saved, w), {x, weight, bias}, out);
}

Variable embedding(const Variable& table, const Tensor& tokens, std::int64_t padding) {
  FSDP_CHECK(table.data().dims() == 2, "embedding: the table must have shape (V, d), got {}",
             to_string(table.shape()));
  FSDP_CHECK(tokens.dtype() == DType::int32, "embedding: tokens must be int32, got {}",
             name_of(tokens.dtype()));
  const Tensor flat = tokens.view({tokens.numel()});
  Shape shape = tokens.shape();
  shape.push_back(table.data().size(1));
  const Tensor out = Tensor::empty(shape, table.data().dtype(), table.data().device());
  ops::embedding(as_rows(out), table.data(), flat);
  return Node::record(std::make_shared<EmbeddingNode>(flat, padding), {table}, out);
}

}  // namespace fsdp
