/// @file
/// @ingroup tensor
/// The kernels of the library, one function each. Every function checks its shapes and calls
/// dispatch(); on `fake` it only advances the virtual clock.
///
/// Conventions. Outputs come first; the caller makes them. Tensors are contiguous unless noted,
/// all of one floating dtype, and may start at any element of their storage.
///
/// On bfloat16 and float16 an operation computes what it would compute on the same values in
/// float32, sums included, and rounds each element of its output once, to nearest, ties to even.
/// The tensors marked (wide) then are float32: rotary tables, norms, log-sum-exps, sums and losses.
///
/// `Write::add` adds to the output, `Write::set` overwrites it. The same call gives the same bits
/// for any number of threads and any alignment. Outputs never overlap inputs unless noted.
///
/// Letters: B batch, T sequence, V vocabulary, d width, F feed-forward width, H heads, G key/value
/// heads (G divides H), D head width; R rows = B*T.
#pragma once

#include "tensor/optimizers.h"
#include "tensor/rope_scaling.h"
#include "tensor/tensor.h"
#include "tensor/write.h"

#include <cstdint>

namespace fsdp::ops {

enum class Transpose { no, yes };

// ------------------------------------------------------------------- elementwise (elementwise.cpp)
void fill(const Tensor& out, double value);
/// Every element of out = value (1, wide), rounded to the dtype of `out`.
void fill_with(const Tensor& out, const Tensor& value);
/// out = in, converting the dtype if they differ; any strides, equal shapes.
void copy(const Tensor& out, const Tensor& in);
/// out = a + b. `out` may be `a` or `b`.
void add(const Tensor& out, const Tensor& a, const Tensor& b);
/// out = a * b.  `out` may be `a` or `b`.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, Write write = Write::set);
/// out (+)= in. One rounding per element.
void write(const Tensor& out, const Tensor& in, Write write);
/// out *= factor; the factor is rounded to the dtype, or to float32 for a 16-bit one, first.
/// If that is 1, it takes no pass over memory.
void scale(const Tensor& out, double factor);
/// scale() by factor · times / over, computed in double. factor (1, wide).
void scale_by(const Tensor& out, const Tensor& factor, double times, double over);
/// out (R, N) += row (N), for every row.
void add_row(const Tensor& out, const Tensor& row);
/// out (N) (+)= sum over rows of in (R, N), in one fixed order.
void sum_rows(const Tensor& out, const Tensor& in, Write write);
/// out (1, wide) = sum of all elements of in, in one fixed order.
void sum(const Tensor& out, const Tensor& in);
void relu(const Tensor& out, const Tensor& in);
void relu_backward(const Tensor& din, const Tensor& dout, const Tensor& in, Write write);
void tanh(const Tensor& out, const Tensor& in);
void tanh_backward(const Tensor& din, const Tensor& dout, const Tensor& out, Write write);
/// True if all bits of a and b agree (so NaN equals itself and +0 differs from -0).
bool equal_bits(const Tensor& a, const Tensor& b);
/// True if no element is infinite or NaN.
bool all_finite(const Tensor& a);

// -------------------------------------------------------------------------- products (product.cpp)
/// out (M, N) (+)= op(a) · op(b), with op(a) (M, K) and op(b) (K, N) transposed as requested. The
/// bits depend on the numbers alone: product.h defines each element as an order of additions.
void matmul(const Tensor& out, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
            Write write = Write::set);

// --------------------------------------------------------------------- transformer (one file each)
/// out (R, d) = table (V, d) at tokens (R) int32. @throws Error naming a token outside [0, V).
void embedding(const Tensor& out, const Tensor& table, const Tensor& tokens);
/// dtable (V, d) (+)= scatter of dout (R, d), in token order. `set` writes every row. The row of
/// the token `padding` (-1: there is none) gets nothing.
void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& tokens, Write write,
                        std::int64_t padding = -1);

/// out = x / rms(x) * weight, row by row.  x, out (R, d); weight (d);
/// rstd (R, wide) = 1 / sqrt(mean(x²) + eps).
void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              double eps);
/// sum = x + y, and rms_norm() of it, in one pass over memory. sum (R, d) may be x or y.
void add_rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& sum, const Tensor& x,
                  const Tensor& y, const Tensor& weight, double eps);
/// dx (R, d) may be undefined (not needed), likewise dweight (d).
void rms_norm_backward(const Tensor& dx, Write write_dx, const Tensor& dweight, Write write_dweight,
                       const Tensor& dout, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd);

/// cos, sin (T, D/2), float32 or float64: angle of position t, pair i = t * f; f = theta^(-2i/D),
/// lowered by `scaling`.
void rope_tables(const Tensor& cos, const Tensor& sin, double theta,
                 const RopeScaling& scaling = {});
/// Rotates x (B, T, heads, D) in place; pairs are (i, i + D/2), the "rotate half" convention of
/// Hugging Face's Llama. `inverse` rotates back: the backward of the rotation.
/// cos, sin (T' >= T, D/2; wide).
void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse);

/// Causal attention. q, out (B, T', H, D); k, v (B, T, G, D); lse (B, H, T'; wide) = log-sum-exp of
/// the scaled scores, kept for the backward. T' <= T: the queries are those of the last positions,
/// and their rows have the bits of a call with all of them. Works tile by tile in the worker's
/// scratch, without a (T', T) matrix.
void attention(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v);
/// dq, dk, dv are overwritten. T' = T.
void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                        const Tensor& v);

/// out = silu(gate) * up, elementwise.
void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up);
/// dgate and dup are overwritten; dgate may be `gate`, dup may be `up` (in place).
void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout, const Tensor& gate,
                     const Tensor& up);

/// A row with this target does not count in the loss, nor in its gradient.
inline constexpr std::int32_t kIgnoredTarget = -100;
/// loss (1, wide) = mean of -log softmax(logits)[target] over the rows that count; 0 if none does.
/// logits (R, V), targets (R) int32. losses (R, wide): that of each row, rounded; 0 if it does not
/// count. If `dlogits` is defined, it is computed in the same pass over memory, and may be `logits`
/// (in place): (softmax(logits) - onehot) * dloss / (rows that count), and 0 in the other rows.
/// @throws Error naming a target that is neither in [0, V) nor kIgnoredTarget.
void cross_entropy(const Tensor& loss, const Tensor& losses, const Tensor& logits,
                   const Tensor& targets, const Tensor& dlogits = {}, double dloss = 1);

// ---------------------------------------------------------------------- optimizers (optimizer.cpp)
// Each follows its definition (PyTorch's where it has one), in one pass over param, grad and its
// state (all (N)). Without a decay of its own, weight_decay · param is a part of the gradient.

/// One step of the optimizer that `how` names. first, second: the states of its row, in that order;
/// if it has fewer, the rest is not looked at.
void update(const Tensor& param, const Tensor& grad, const Tensor& first, const Tensor& second,
            const Update& how);

}  // namespace fsdp::ops
