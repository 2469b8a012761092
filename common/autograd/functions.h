/// @file
/// @ingroup autograd
/// Differentiable functions over tensor/ops.h. Shapes as there; leading dimensions are flattened to
/// rows.
///
/// What each function keeps for its backward, and what its backward allocates, is part of the
/// contract: the memory formula follows this table. Bytes are element size e times the numbers
/// below; R rows, B·T = R. "Result" is the output itself, allocated in forward (ACTIVATION) and
/// alive while anything holds it. Backward allocates (TEMP) only gradients of inputs that need one:
/// a tensor of the input's size for the first contribution to an input that is not a leaf, nothing
/// for later ones (added in place), and nothing for a leaf with a gradient buffer. After the node
/// has run, dout, the gradient of the output, is freed. So are the saved tensors, unless noted.
///
/// | function       | kept beyond inputs that are kept anyway        | temporaries beyond that    |
/// |----------------|------------------------------------------------|----------------------------|
/// | linear         | x (R·in) unless the weight is frozen; weight   | none; x is freed before dx |
/// |                | (a view)                                       |                            |
/// | embedding      | tokens (int32, shared)                         | none                       |
/// | rms_norm       | x (R·d), weight (a view), rstd (R)             | none                       |
/// | rope_attention | q (R·H·D), k, v (R·G·D), result, lse (B·H·T)   | none if only used here     |
/// | swiglu         | gate, up (R·F each)                            | over gate, up              |
/// | add            | nothing; result in y's bytes if y is moved in  | none: dout is shared       |
/// | multiply       | x, y: each for the gradient of the other       | none                       |
/// | relu, tanh     | x; the result                                  | none                       |
/// | scale          | nothing                                        | over dout                  |
/// | sum, reshape   | nothing; result of reshape shares x            | none                       |
/// | cross_entropy  | dlogits (R·V), over logits if moved in; R more | none                       |
/// |                | during forward                                 |                            |
/// | mse_loss       | x - y (N), and N more during forward           | over x - y                 |
///
/// A checkpoint may have kept the results of linear and rope_attention from its first call. Then
/// they are taken, not computed again (kept_results.h).
///
/// Where no input needs a gradient, nothing is recorded and nothing is kept. A frozen weight of
/// rms_norm saves nothing: x and rstd are also needed for the gradient of x.
///
/// "Over x" means written into x's bytes, if nothing else holds them (is_sole_holder). Otherwise a
/// tensor of that size is allocated. Reused bytes count as TEMP from then on.
#pragma once

#include "autograd/variable.h"

#include <optional>

namespace fsdp {

/// y (…, out) = x (…, in) · weightᵀ, weight (out, in), plus bias (out) if defined.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});
/// y (B, T, d) = table (V, d) at tokens (B, T). The row of the token `padding` (-1: there is none)
/// gets no gradient from here.
Variable embedding(const Variable& table, const Tensor& tokens, std::int64_t padding = -1);
/// y = x / rms(x) * weight over the last dimension.
Variable rms_norm(const Variable& x, const Variable& weight, double eps);
/// Rotates q (B, T, H*D) and k (B, T, G*D) by their positions, then causal attention; out (B, T,
/// H*D). q and k are rotated in place: they must be fresh results that nothing else reads.
Variable rope_attention(const Variable& q, const Variable& k, const Variable& v, int heads,
                        int kv_heads, const Tensor& cos, const Tensor& sin);
/// silu(gate) * up.
Variable swiglu(const Variable& gate, const Variable& up);
/// x + y. If `y` is a temporary or moved in, and nothing else holds its bytes, the sum is written
/// into them, else into fresh ones.
Variable add(const Variable& x, Variable y);
Variable multiply(const Variable& x, const Variable& y);
Variable relu(const Variable& x);
Variable tanh(const Variable& x);
Variable scale(const Variable& x, double factor);
Variable sum(const Variable& x);  ///< one element
/// The same elements in another shape; shares x's bytes.
Variable reshape(const Variable& x, Shape shape);
/// Mean over rows of the cross-entropy; logits (…, V), targets (…) int32. Move the logits in: if
/// nothing else holds them, their gradient is written over them.
///
/// It is made with the loss, while the logits are read, for the `gradient` of the loss that
/// backward() is expected to begin with: 1, or 2^15 in float16, which keeps small ones above zero.
/// If backward() begins with another, that takes a pass of its own, and rounds once more.
Variable cross_entropy(Variable logits, const Tensor& targets,
                       std::optional<double> gradient = std::nullopt);
/// mean((x - y)²), y constant.
Variable mse_loss(const Variable& x, const Tensor& y);

}  // namespace fsdp
