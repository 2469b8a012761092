/// @file
/// @ingroup autograd
/// Differentiable functions over tensor/ops.h. Shapes as there; leading dimensions are flattened to rows.
#pragma once

#include "autograd/variable.h"

namespace fsdp {

/// y (…, out) = x (…, in) · weightᵀ, weight (out, in), plus bias (out) if defined.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});
/// y (B, T, d) = table (V, d) at tokens (B, T).
Variable embedding(const Variable& table, const Tensor& tokens);
/// y = x / rms(x) * weight over the last dimension.
Variable rms_norm(const Variable& x, const Variable& weight, double eps);
/// Rotates q (B, T, H*D) and k (B, T, G*D) by their positions, then causal attention; out (B, T, H*D).
/// q and k are rotated in place: they must be fresh results that nobody else reads.
Variable rope_attention(const Variable& q, const Variable& k, const Variable& v, int heads,
                        int kv_heads, const Tensor& cos, const Tensor& sin);
Variable swiglu(const Variable& gate, const Variable& up);
/// x + y. The sum is written into y's own bytes when nobody else holds them, else into fresh ones.
Variable add(const Variable& x, const Variable& y);
Variable multiply(const Variable& x, const Variable& y);
Variable relu(const Variable& x);
Variable tanh(const Variable& x);
Variable scale(const Variable& x, double factor);
Variable sum(const Variable& x);      ///< one element
Variable reshape(const Variable& x, Shape shape);
/// Mean over rows of the cross-entropy; logits (…, V), targets (…) int32. In backward the gradient is
/// written over the logits when nobody else holds them.
Variable cross_entropy(const Variable& logits, const Tensor& targets);
/// mean((x - y)²), y constant.
Variable mse_loss(const Variable& x, const Tensor& y);

}  // namespace fsdp
