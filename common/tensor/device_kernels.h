/// @file
/// @ingroup tensor
/// The operations of ops.h as kernels of an accelerator.
///
/// An operation checks its operands and, if they are on such a device, calls the function of the
/// same name here. That checks nothing again. It gives the device its work and returns; only a
/// function that returns a value waits for it.
///
/// Programs that are linked with CUDA have functions that overwrite these. Here each throws an
/// Error that names the operation.
#pragma once

#include "tensor/init.h"
#include "tensor/ops.h"

#include <cstdint>

namespace fsdp {

class DeviceKernels {
 public:
  using Write = ops::Write;
  using Transpose = ops::Transpose;

  DeviceKernels() = default;
  virtual ~DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  /// What a rank's kernels keep on its device, as TEMP, beside the workspace of products that
  /// Context::Options names.
  virtual std::int64_t scratch_nbytes();

  virtual void fill(const Tensor& out, double value);
  virtual void fill_with(const Tensor& out, const Tensor& value);
  virtual void copy(const Tensor& out, const Tensor& in);
  virtual bool equal_bits(const Tensor& a, const Tensor& b);
  virtual bool all_finite(const Tensor& a);

  virtual void add(const Tensor& out, const Tensor& a, const Tensor& b);
  virtual void multiply(const Tensor& out, const Tensor& a, const Tensor& b, Write write);
  virtual void write(const Tensor& out, const Tensor& in, Write write);
  virtual void scale(const Tensor& out, double factor);
  virtual void scale_by(const Tensor& out, const Tensor& factor, double times, double over);
  virtual void add_row(const Tensor& out, const Tensor& row);
  virtual void sum_rows(const Tensor& out, const Tensor& in, Write write);
  virtual void sum(const Tensor& out, const Tensor& in);
  virtual void relu(const Tensor& out, const Tensor& in);
  virtual void relu_backward(const Tensor& din, const Tensor& dout, const Tensor& in, Write write);
  virtual void tanh(const Tensor& out, const Tensor& in);
  virtual void tanh_backward(const Tensor& din, const Tensor& dout, const Tensor& out, Write write);

  virtual void matmul(const Tensor& out, const Tensor& a, Transpose ta, const Tensor& b,
                      Transpose tb, Write write);

  virtual void embedding(const Tensor& out, const Tensor& table, const Tensor& tokens);
  virtual void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& tokens,
                                  Write write);
  virtual void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, double eps);
  virtual void rms_norm_backward(const Tensor& dx, Write write_dx, const Tensor& dweight,
                                 Write write_dweight, const Tensor& dout, const Tensor& x,
                                 const Tensor& weight, const Tensor& rstd);
  virtual void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse);
  virtual void attention(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                         const Tensor& v);
  virtual void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                  const Tensor& dout, const Tensor& out, const Tensor& lse,
                                  const Tensor& q, const Tensor& k, const Tensor& v);
  virtual void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up);
  virtual void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout,
                               const Tensor& gate, const Tensor& up);
  virtual void cross_entropy(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                             const Tensor& targets);
  virtual void cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss,
                                      const Tensor& logits, const Tensor& targets,
                                      const Tensor& lse);

  virtual void adamw(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
                     const Tensor& exp_avg_sq, const ops::AdamWStep& hyper);
  virtual void sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
                   const ops::SgdStep& hyper);
  virtual void adamax(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
                      const Tensor& exp_inf, const ops::AdamaxStep& hyper);
  virtual void adagrad(const Tensor& param, const Tensor& grad, const Tensor& sum,
                       const ops::AdagradStep& hyper);
  virtual void adadelta(const Tensor& param, const Tensor& grad, const Tensor& square_avg,
                        const Tensor& acc_delta, const ops::AdadeltaStep& hyper);

  /// init_slice() with random values: element i is drawn from the word (seed, first + i).
  virtual void draw(const Tensor& out, const InitSpec& spec, std::uint64_t seed,
                    std::uint64_t first);
  /// ExactSquareSum::add(): counters (ExactSquareSum::kCounters) int64 += squares of values.
  virtual void add_squares(const Tensor& counters, const Tensor& values);
};

/// Those of the program's accelerator.
DeviceKernels& device_kernels();

}  // namespace fsdp
