// Initial values, exact norms, and the steps of optimizers.
#include "tensor/cuda/exact_norm.h"
#include "tensor/cuda/init.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/optimizer.h"
#include "tensor/cuda/optimizer_adaptive.h"
#include "tensor/normal_quantile.h"

namespace fsdp::cuda {
namespace {

void draw(const Tensor& out, const InitSpec& spec, std::uint64_t seed, std::uint64_t first) {
  dispatch_floating("init_slice", out.dtype(), [&]<class T>(T) {
    if (spec.kind == InitSpec::Kind::truncated_normal) {
      draw_truncated_normal(compute(), out.data<T>(), out.numel(), seed, first, spec.mean, spec.std,
                            normal_mass_within(spec.cut));
    } else {
      draw_uniform(compute(), out.data<T>(), out.numel(), seed, first, spec.low,
                   spec.high - spec.low);
    }
  });
}

void add_squares(const Tensor& counters, const Tensor& values) {
  add_exact_squares(compute(), counters.data<std::int64_t>(), values.data<float>(), values.numel());
}

void adamw(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
           const ops::AdamWStep& hyper) {
  dispatch_floating("adamw", param.dtype(), [&]<class T>(T) {
    cuda::adamw(compute(), param.data<T>(), grad.data<T>(), exp_avg.data<T>(), exp_avg_sq.data<T>(),
                param.numel(), hyper);
  });
}

void sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
         const ops::SgdStep& hyper) {
  dispatch_floating("sgd", param.dtype(), [&]<class T>(T) {
    T* const buffer = hyper.momentum != 0 ? momentum_buffer.data<T>() : nullptr;
    cuda::sgd(compute(), param.data<T>(), grad.data<T>(), buffer, param.numel(), hyper);
  });
}

void adamax(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_inf,
            const ops::AdamaxStep& hyper) {
  dispatch_floating("adamax", param.dtype(), [&]<class T>(T) {
    cuda::adamax(compute(), param.data<T>(), grad.data<T>(), exp_avg.data<T>(), exp_inf.data<T>(),
                 param.numel(), hyper);
  });
}

void adagrad(const Tensor& param, const Tensor& grad, const Tensor& sum,
             const ops::AdagradStep& hyper) {
  dispatch_floating("adagrad", param.dtype(), [&]<class T>(T) {
    cuda::adagrad(compute(), param.data<T>(), grad.data<T>(), sum.data<T>(), param.numel(), hyper);
  });
}

void adadelta(const Tensor& param, const Tensor& grad, const Tensor& square_avg,
              const Tensor& acc_delta, const ops::AdadeltaStep& hyper) {
  dispatch_floating("adadelta", param.dtype(), [&]<class T>(T) {
    cuda::adadelta(compute(), param.data<T>(), grad.data<T>(), square_avg.data<T>(),
                   acc_delta.data<T>(), param.numel(), hyper);
  });
}

}  // namespace

void add_optimizer_kernels(DeviceKernels& kernels) {
  kernel_of<ops::adamw> = adamw;
  kernel_of<ops::sgd> = sgd;
  kernel_of<ops::adamax> = adamax;
  kernel_of<ops::adagrad> = adagrad;
  kernel_of<ops::adadelta> = adadelta;
  kernels.draw = draw;
  kernels.add_squares = add_squares;
}

}  // namespace fsdp::cuda
