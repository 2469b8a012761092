// Bytes an element: Adamax and Adadelta read four values and write three (28 in float32), Adagrad
// three and two (20); 8 to 16 flops. So memory limits all: at 3.3 TB/s, 118 and 165 G elements/s.
#include "tensor/cuda/optimizer_adaptive.h"

#include "base/fixed_math.h"
#include "tensor/cuda/optimizer_update.h"

namespace fsdp::cuda {
namespace {

float rounded(double value) { return static_cast<float>(value); }

struct Adamax {
  static constexpr int states = 2;
  float rate, eps, keep, take, fade;
  GradientDecay decay;

  __device__ void operator()(float& p, float g, float& m, float& u) const {
    g = decay.of(g, p);
    m = m * keep + g * take;
    const float magnitude = -g > g ? -g : g;
    const float faded = u * fade, fresh = magnitude + eps;
    u = fresh > faded ? fresh : faded;  // a NaN gradient is ignored here, as on the CPU
    p = p - rate * m / u;
  }
};

struct Adagrad {
  static constexpr int states = 1;
  float rate, eps;
  GradientDecay decay;

  __device__ void operator()(float& p, float g, float& s, float&) const {
    g = decay.of(g, p);
    s = s + g * g;
    p = p - rate * g / (__fsqrt_rn(s) + eps);
  }
};

struct Adadelta {
  static constexpr int states = 2;
  float rate, eps, keep, take;
  GradientDecay decay;

  __device__ void operator()(float& p, float g, float& s, float& a) const {
    g = decay.of(g, p);
    s = s * keep + g * g * take;
    const float delta = __fsqrt_rn(a + eps) / __fsqrt_rn(s + eps) * g;
    a = a * keep + delta * delta * take;
    p = p - rate * delta;
  }
};

}  // namespace

template <class T>
void adamax(Stream stream, T* param, const T* grad, T* exp_avg, T* exp_inf, std::int64_t n,
            const ops::AdamaxStep& hyper) {
  // Scalars in double, rounded once, as in optimizer_adaptive.cpp.
  const double correction = 1 - fixed::pow(hyper.beta1, static_cast<double>(hyper.step));
  const Adamax update{.rate = rounded(hyper.lr / correction),
                      .eps = rounded(hyper.eps),
                      .keep = rounded(hyper.beta1),
                      .take = rounded(1 - hyper.beta1),
                      .fade = rounded(hyper.beta2),
                      .decay = GradientDecay(hyper.weight_decay)};
  update_all("adamax", stream, param, grad, exp_avg, exp_inf, n, update);
}

template <class T>
void adagrad(Stream stream, T* param, const T* grad, T* sum, std::int64_t n,
             const ops::AdagradStep& hyper) {
  const auto earlier = static_cast<double>(hyper.step - 1);
  const Adagrad update{.rate = rounded(hyper.lr / (1 + earlier * hyper.lr_decay)),
                       .eps = rounded(hyper.eps),
                       .decay = GradientDecay(hyper.weight_decay)};
  T* const none = nullptr;
  update_all("adagrad", stream, param, grad, sum, none, n, update);
}

template <class T>
void adadelta(Stream stream, T* param, const T* grad, T* square_avg, T* acc_delta, std::int64_t n,
              const ops::AdadeltaStep& hyper) {
  const Adadelta update{.rate = rounded(hyper.lr),
                        .eps = rounded(hyper.eps),
                        .keep = rounded(hyper.rho),
                        .take = rounded(1 - hyper.rho),
                        .decay = GradientDecay(hyper.weight_decay)};
  update_all("adadelta", stream, param, grad, square_avg, acc_delta, n, update);
}

#define FSDP_FOR(T)                                                                         \
  template void adamax(Stream, T*, const T*, T*, T*, std::int64_t, const ops::AdamaxStep&); \
  template void adagrad(Stream, T*, const T*, T*, std::int64_t, const ops::AdagradStep&);   \
  template void adadelta(Stream, T*, const T*, T*, T*, std::int64_t, const ops::AdadeltaStep&);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
