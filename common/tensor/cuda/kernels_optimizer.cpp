// Initial values, exact norms, and the steps of optimizers.
#include "tensor/cuda/exact_norm.h"
#include "tensor/cuda/init.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/optimizer.h"
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

void add_squares(const Tensor& counters, const Tensor& values, float factor) {
  add_exact_squares(compute(), counters.data<std::int64_t>(), values.data<float>(), values.numel(),
                    factor);
}

void update(const Tensor& param, const Tensor& grad, const Tensor& first, const Tensor& second,
            const ops::Update& how) {
  const char* const name = ops::optimizer_of(how.rule).name;
  dispatch_floating(name, param.dtype(), [&]<class T>(T) {
    const auto data = [](const Tensor& state) {
      return state.is_defined() ? state.data<T>() : nullptr;
    };
    cuda::update(name, compute(), param.data<T>(), grad.data<T>(), data(first), data(second),
                 param.numel(), how);
  });
}

}  // namespace

void add_optimizer_kernels(DeviceKernels& kernels) {
  kernel_of<ops::update> = update;
  kernels.draw = draw;
  kernels.add_squares = add_squares;
}

}  // namespace fsdp::cuda
