// Optimizers whose state adapts the rate of each element: Adamax, Adagrad and Adadelta.
#include "base/fixed_math.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

namespace fsdp::ops {
namespace {

template <class T>
simd::Vec<T> vec(double value) {
  return simd::splat<T>(static_cast<Wide<T>>(value));
}

// Calls body(i, count, param, grad) for the elements from i on, the decay being a part of grad.
template <class T, class Body>
void for_each_piece(const Tensor& param, const Tensor& grad, double weight_decay, Body body) {
  const T* p = param.data<T>();
  const T* g = grad.data<T>();
  const auto decay = vec<T>(weight_decay);
  const bool decays = weight_decay != 0;
  parallel_ranges(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
    simd::for_lanes<T>(end - begin, [=](std::int64_t k, auto count) {
      const std::int64_t i = begin + k;
      const auto pv = simd::load_n<T>(p + i, count);
      auto gv = simd::load_n<T>(g + i, count);
      if (decays) gv += pv * decay;
      body(i, count, pv, gv);
    });
  });
}

template <class T>
simd::Vec<T> magnitude(simd::Vec<T> v) {
  return simd::max<T>(v, -v);
}

}  // namespace

void adamax(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_inf,
            const AdamaxStep& hyper) {
  Operands args("adamax");
  args.expect_like("param", param, param.shape()).expect_like("grad", grad, param.shape());
  args.expect_like("exp_avg", exp_avg, param.shape());
  args.expect_like("exp_inf", exp_inf, param.shape());
  FSDP_CHECK(hyper.step >= 1, "adamax: the step counts from 1, got {}", hyper.step);
  if (is_accelerated(args.device()))
    return accelerated<adamax>(param, grad, exp_avg, exp_inf, hyper);
  const auto n = static_cast<double>(param.numel());
  dispatch(args.device(), cost_of(11 * n, 7 * n, args.dtype()), [&] {
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      const double correction = 1 - fixed::pow(hyper.beta1, static_cast<double>(hyper.step));
      const auto rate = vec<T>(hyper.lr / correction), eps = vec<T>(hyper.eps);
      const auto keep = vec<T>(hyper.beta1), take = vec<T>(1 - hyper.beta1);
      const auto fade = vec<T>(hyper.beta2);
      T* p = param.data<T>();
      T* m = exp_avg.data<T>();
      T* u = exp_inf.data<T>();
      for_each_piece<T>(
          param, grad, hyper.weight_decay, [=](std::int64_t i, auto count, auto pv, auto gv) {
            const auto mv = simd::load_n<T>(m + i, count) * keep + gv * take;
            const auto uv =
                simd::max<T>(simd::load_n<T>(u + i, count) * fade, magnitude<T>(gv) + eps);
            simd::store_n<T>(m + i, mv, count);
            simd::store_n<T>(u + i, uv, count);
            simd::store_n<T>(p + i, pv - rate * mv / uv, count);
          });
    });
  });
}

void adagrad(const Tensor& param, const Tensor& grad, const Tensor& sum, const AdagradStep& hyper) {
  Operands args("adagrad");
  args.expect_like("param", param, param.shape()).expect_like("grad", grad, param.shape());
  args.expect_like("sum", sum, param.shape());
  FSDP_CHECK(hyper.step >= 1, "adagrad: the step counts from 1, got {}", hyper.step);
  if (is_accelerated(args.device())) return accelerated<adagrad>(param, grad, sum, hyper);
  const auto n = static_cast<double>(param.numel());
  dispatch(args.device(), cost_of(8 * n, 5 * n, args.dtype()), [&] {
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      const auto earlier = static_cast<double>(hyper.step - 1);
      const auto rate = vec<T>(hyper.lr / (1 + earlier * hyper.lr_decay));
      const auto eps = vec<T>(hyper.eps);
      T* p = param.data<T>();
      T* s = sum.data<T>();
      for_each_piece<T>(
          param, grad, hyper.weight_decay, [=](std::int64_t i, auto count, auto pv, auto gv) {
            const auto sv = simd::load_n<T>(s + i, count) + gv * gv;
            simd::store_n<T>(s + i, sv, count);
            simd::store_n<T>(p + i, pv - rate * gv / (simd::sqrt<T>(sv) + eps), count);
          });
    });
  });
}

void adadelta(const Tensor& param, const Tensor& grad, const Tensor& square_avg,
              const Tensor& acc_delta, const AdadeltaStep& hyper) {
  Operands args("adadelta");
  args.expect_like("param", param, param.shape()).expect_like("grad", grad, param.shape());
  args.expect_like("square_avg", square_avg, param.shape());
  args.expect_like("acc_delta", acc_delta, param.shape());
  if (is_accelerated(args.device()))
    return accelerated<adadelta>(param, grad, square_avg, acc_delta, hyper);
  const auto n = static_cast<double>(param.numel());
  dispatch(args.device(), cost_of(16 * n, 7 * n, args.dtype()), [&] {
    dispatch_floating(args.dtype(), [&]<class T>(T) {
      const auto rate = vec<T>(hyper.lr), eps = vec<T>(hyper.eps);
      const auto keep = vec<T>(hyper.rho), take = vec<T>(1 - hyper.rho);
      T* p = param.data<T>();
      T* s = square_avg.data<T>();
      T* a = acc_delta.data<T>();
      for_each_piece<T>(param, grad, hyper.weight_decay,
                        [=](std::int64_t i, auto count, auto pv, auto gv) {
                          const auto sv = simd::load_n<T>(s + i, count) * keep + gv * gv * take;
                          const auto av = simd::load_n<T>(a + i, count);
                          const auto delta = simd::sqrt<T>(av + eps) / simd::sqrt<T>(sv + eps) * gv;
                          simd::store_n<T>(s + i, sv, count);
                          simd::store_n<T>(a + i, av * keep + delta * delta * take, count);
                          simd::store_n<T>(p + i, pv - rate * delta, count);
                        });
    });
  });
}

}  // namespace fsdp::ops
