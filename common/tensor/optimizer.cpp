#include "base/fixed_math.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

#include <cmath>

namespace fsdp::ops {

void adamw(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
           const AdamWStep& hyper) {
  Operands args("adamw");
  args.expect_like("param", param, param.shape()).expect_like("grad", grad, param.shape());
  args.expect_like("exp_avg", exp_avg, param.shape());
  args.expect_like("exp_avg_sq", exp_avg_sq, param.shape());
  FSDP_CHECK(hyper.step >= 1, "adamw: the step counts from 1, got {}", hyper.step);
  if (is_accelerated(args.device()))
    return accelerated<adamw>(param, grad, exp_avg, exp_avg_sq, hyper);
  const auto n = static_cast<double>(param.numel());
  dispatch(args.device(), cost_of(15 * n, 7 * n, args.dtype()), [&] {
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      // Scalars in double, rounded once: what PyTorch does.
      const auto step = static_cast<double>(hyper.step);
      const double correction1 = 1 - fixed::pow(hyper.beta1, step);
      const double correction2 = 1 - fixed::pow(hyper.beta2, step);
      const auto vec = [](double value) { return simd::splat<T>(static_cast<Wide<T>>(value)); };
      const bool by_rate = hyper.decays_by_rate;
      const auto decay = vec(by_rate ? 1 - hyper.lr * hyper.weight_decay : hyper.weight_decay);
      const auto keep1 = vec(hyper.beta1), take1 = vec(1 - hyper.beta1);
      const auto keep2 = vec(hyper.beta2), take2 = vec(1 - hyper.beta2);
      const auto root = vec(std::sqrt(correction2));
      const auto eps = vec(hyper.eps);
      const auto rate = vec(hyper.lr / correction1);
      T* p = param.data<T>();
      const T* g = grad.data<T>();
      T* m = exp_avg.data<T>();
      T* v = exp_avg_sq.data<T>();
      parallel_ranges(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
        simd::for_lanes<T>(end - begin, [=](std::int64_t k, auto count) {
          const std::int64_t i = begin + k;
          auto pv = simd::load_n<T>(p + i, count);
          auto gv = simd::load_n<T>(g + i, count);
          if (by_rate) {
            pv *= decay;
          } else {
            gv += pv * decay;
          }
          const auto mv = simd::load_n<T>(m + i, count) * keep1 + gv * take1;
          const auto vv = simd::load_n<T>(v + i, count) * keep2 + gv * gv * take2;
          const auto denominator = simd::sqrt<T>(vv) / root + eps;
          simd::store_n<T>(m + i, mv, count);
          simd::store_n<T>(v + i, vv, count);
          simd::store_n<T>(p + i, pv - rate * mv / denominator, count);
        });
      });
    });
  });
}

void sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
         const SgdStep& hyper) {
  Operands args("sgd");
  args.expect_like("param", param, param.shape()).expect_like("grad", grad, param.shape());
  const bool has_momentum = hyper.momentum != 0;
  if (has_momentum) args.expect_like("momentum_buffer", momentum_buffer, param.shape());
  if (is_accelerated(args.device())) return accelerated<sgd>(param, grad, momentum_buffer, hyper);
  const auto n = static_cast<double>(param.numel());
  dispatch(args.device(), cost_of(4 * n, (has_momentum ? 5 : 3) * n, args.dtype()), [&] {
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      const auto vec = [](double value) { return simd::splat<T>(static_cast<Wide<T>>(value)); };
      const auto rate = vec(hyper.lr), decay = vec(hyper.weight_decay), keep = vec(hyper.momentum);
      const bool decays = hyper.weight_decay != 0, first = hyper.first;
      T* p = param.data<T>();
      const T* g = grad.data<T>();
      T* buffer = has_momentum ? momentum_buffer.data<T>() : nullptr;
      parallel_ranges(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
        simd::for_lanes<T>(end - begin, [=](std::int64_t k, auto count) {
          const std::int64_t i = begin + k;
          const auto pv = simd::load_n<T>(p + i, count);
          auto direction = simd::load_n<T>(g + i, count);
          if (decays) direction += pv * decay;
          if (has_momentum) {
            if (!first) direction = simd::load_n<T>(buffer + i, count) * keep + direction;
            simd::store_n<T>(buffer + i, direction, count);
          }
          simd::store_n<T>(p + i, pv - rate * direction, count);
        });
      });
    });
  });
}

}  // namespace fsdp::ops
