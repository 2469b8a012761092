#include "autograd/deferred_sum.h"
#include "autograd/functions.h"
#include "autograd/kept_results.h"
#include "autograd/node.h"
#include "autograd/rows.h"

namespace fsdp {

namespace {

class RmsNormNode : public Node {
 public:
  RmsNormNode(Tensor x, Tensor weight, Tensor rstd)
      : x_(std::move(x)), weight_(std::move(weight)), rstd_(std::move(rstd)) {}
  std::string_view name() const override { return "rms_norm"; }
  void backward(const Tensor& dout) override {
    const GradTarget dx = target(0);
    const GradTarget dweight = target(1);
    ops::rms_norm_backward(dx ? as_rows(dx.tensor) : Tensor(), dx.write, dweight.tensor,
                           dweight.write, as_rows(dout), x_, weight_, rstd_);
  }
  void release() override { x_ = weight_ = rstd_ = {}; }

 private:
  Tensor x_, weight_, rstd_;
};

class RopeAttentionNode : public Node {
 public:
  struct Saved {
    Tensor q, k, v, out, lse, cos, sin;  // q and k rotated
  };
  explicit RopeAttentionNode(Saved saved) : saved_(std::move(saved)) {}
  std::string_view name() const override { return "rope_attention"; }
  void backward(const Tensor& dout) override {
    const Place dq = place(0, saved_.q);
    const Place dk = place(1, saved_.k);
    const Place dv = place(2, saved_.v);
    ops::attention_backward(dq.written, dk.written, dv.written, dout.view(saved_.out.shape()),
                            saved_.out, saved_.lse, saved_.q, saved_.k, saved_.v);
    ops::rope(dq.written, saved_.cos, saved_.sin, true);
    ops::rope(dk.written, saved_.cos, saved_.sin, true);
    for (const Place* place : {&dq, &dk, &dv}) {
      if (place->is_aside && place->target) {
        ops::write(place->target.tensor, place->written.view(place->target.tensor.shape()),
                   place->target.write);
      }
    }
  }
  void release() override { saved_ = {}; }

 private:
  struct Place {
    GradTarget target;
    bool is_aside;
    Tensor written;
  };
  // The kernel can only overwrite: it writes into the target itself unless that holds something, or
  // is not wanted.
  Place place(std::size_t i, const Tensor& like) {
    GradTarget goal = target(i);
    const bool is_aside = !goal || goal.write == ops::Write::add;
    Tensor written = is_aside ? empty_like(like) : goal.tensor.view(like.shape());
    return {std::move(goal), is_aside, std::move(written)};
  }

  Saved saved_;
};

class SwigluNode : public Node {
 public:
  SwigluNode(Tensor gate, Tensor up) : gate_(std::move(gate)), up_(std::move(up)) {}
  std::string_view name() const override { return "swiglu"; }
  void backward(const Tensor& dout) override {
    const Tensor dgate = over_or_fresh(gate_);
    const Tensor dup = over_or_fresh(up_);
    ops::swiglu_backward(dgate, dup, dout, gate_, up_);
    gate_ = up_ = {};  // so that a gradient in their bytes has one holder
    pass(0, dgate);
    pass(1, dup);
  }
  void release() override { gate_ = up_ = {}; }

 private:
  Tensor gate_, up_;
};

}  // namespace

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  const Tensor rows = as_rows(x.data());
  const Tensor out = empty_like(x.data());
  const Tensor rstd = Tensor::empty({rows.size(0)}, wide_of(rows.dtype()), rows.device());
  if (const auto terms = DeferredSum::take(x.data())) {
    ops::add_rms_norm(as_rows(out), rstd, rows, as_rows(terms->x), as_rows(terms->y), weight.data(),
                      eps);
  } else {
    ops::rms_norm(as_rows(out), rstd, rows, weight.data(), eps);
  }
  return Node::record(std::make_shared<RmsNormNode>(rows, weight.data(), rstd), {x, weight}, out);
}

Variable rope_attention(const Variable& q, const Variable& k, const Variable& v, int heads,
                        int kv_heads, const Tensor& cos, const Tensor& sin) {
  const Tensor& query = q.data();
  FSDP_CHECK(query.dims() == 3 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 &&
                 query.size(2) % heads == 0,
             "rope_attention: q {} cannot be split into {} heads over {} key/value heads",
             to_string(query.shape()), heads, kv_heads);
  const std::int64_t batch = query.size(0), length = query.size(1), width = query.size(2) / heads;
  const Shape kv_shape{batch, length, kv_heads * width};
  FSDP_CHECK(k.shape() == kv_shape && v.shape() == kv_shape,
             "rope_attention: k {} and v {} must both be {}", to_string(k.shape()),
             to_string(v.shape()), to_string(kv_shape));
  Tensor out, lse;
  const bool is_taken = KeptResults::take({&out, &lse});
  if (!is_taken) {
    out = empty_like(query);
    lse = Tensor::empty({batch, heads, length}, wide_of(query.dtype()), query.device());
  }
  const RopeAttentionNode::Saved saved{.q = query.view({batch, length, heads, width}),
                                       .k = k.data().view({batch, length, kv_heads, width}),
                                       .v = v.data().view({batch, length, kv_heads, width}),
                                       .out = out.view({batch, length, heads, width}),
                                       .lse = lse,
                                       .cos = cos,
                                       .sin = sin};
  for (const Tensor& each : {saved.q, saved.k}) {
    if (!KeptResults::has_taken(each)) ops::rope(each, cos, sin, false);
  }
  if (!is_taken) {
    ops::attention(saved.out, saved.lse, saved.q, saved.k, saved.v);
    KeptResults::keep({out, lse});
  }
  return Node::record(std::make_shared<RopeAttentionNode>(saved), {q, k, v}, out);
}

Variable swiglu(const Variable& gate, const Variable& up) {
  const Tensor out = empty_like(gate.data());
  ops::swiglu(out, gate.data(), up.data());
  return Node::record(std::make_shared<SwigluNode>(gate.data(), up.data()), {gate, up}, out);
}

}  // namespace fsdp
