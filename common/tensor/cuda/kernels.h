/// @file
/// @ingroup tensor
/// The kernels of tensor/cuda as functions on tensors.
#pragma once

#include "device/context.h"
#include "device/cuda/stream.h"
#include "tensor/device_kernels.h"
#include "tensor/dispatch.h"

namespace fsdp::cuda {

/// Each takes the addresses out of its tensors and calls the function of the same name on the
/// rank's compute stream. In three files: kernels_elementwise.cpp, kernels_transformer.cpp,
/// kernels_optimizer.cpp.
class CudaKernels final : public DeviceKernels {
 public:
  std::int64_t scratch_nbytes() override;
  void fill(const Tensor& out, double value) override;
  void fill_with(const Tensor& out, const Tensor& value) override;
  void copy(const Tensor& out, const Tensor& in) override;
  bool equal_bits(const Tensor& a, const Tensor& b) override;
  bool all_finite(const Tensor& a) override;

  void add(const Tensor& out, const Tensor& a, const Tensor& b) override;
  void multiply(const Tensor& out, const Tensor& a, const Tensor& b, Write write) override;
  void write(const Tensor& out, const Tensor& in, Write write) override;
  void scale(const Tensor& out, double factor) override;
  void scale_by(const Tensor& out, const Tensor& factor, double times, double over) override;
  void add_row(const Tensor& out, const Tensor& row) override;
  void sum_rows(const Tensor& out, const Tensor& in, Write write) override;
  void sum(const Tensor& out, const Tensor& in) override;
  void relu(const Tensor& out, const Tensor& in) override;
  void relu_backward(const Tensor& din, const Tensor& dout, const Tensor& in, Write write) override;
  void tanh(const Tensor& out, const Tensor& in) override;
  void tanh_backward(const Tensor& din, const Tensor& dout, const Tensor& out,
                     Write write) override;

  void matmul(const Tensor& out, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
              Write write) override;

  void embedding(const Tensor& out, const Tensor& table, const Tensor& tokens) override;
  void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& tokens,
                          Write write) override;
  void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                double eps) override;
  void rms_norm_backward(const Tensor& dx, Write write_dx, const Tensor& dweight,
                         Write write_dweight, const Tensor& dout, const Tensor& x,
                         const Tensor& weight, const Tensor& rstd) override;
  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) override;
  void attention(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                 const Tensor& v) override;
  void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                          const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                          const Tensor& v) override;
  void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up) override;
  void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout,
                       const Tensor& gate, const Tensor& up) override;
  void cross_entropy(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                     const Tensor& targets) override;
  void cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                              const Tensor& targets, const Tensor& lse) override;

  void adamw(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
             const Tensor& exp_avg_sq, const ops::AdamWStep& hyper) override;
  void sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
           const ops::SgdStep& hyper) override;
  void adamax(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_inf,
              const ops::AdamaxStep& hyper) override;
  void adagrad(const Tensor& param, const Tensor& grad, const Tensor& sum,
               const ops::AdagradStep& hyper) override;
  void adadelta(const Tensor& param, const Tensor& grad, const Tensor& square_avg,
                const Tensor& acc_delta, const ops::AdadeltaStep& hyper) override;

  void draw(const Tensor& out, const InitSpec& spec, std::uint64_t seed,
            std::uint64_t first) override;
  void add_squares(const Tensor& counters, const Tensor& values) override;
};

/// The stream of this rank's kernels.
inline Stream compute() { return Context::current().rank_device().compute(); }

/// dispatch_floating() for kernels of CUDA, which do not compute in float64.
template <class Body>
void dispatch_floating(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32:
      return body(float{});
    case DType::bfloat16:
      return body(BFloat16{});
    case DType::float16:
      return body(Float16{});
    default:
      fail("{} has no kernel for {} on CUDA: use float32, bfloat16 or float16, or the cpu",
           operation, name_of(dtype));
  }
}

}  // namespace fsdp::cuda
