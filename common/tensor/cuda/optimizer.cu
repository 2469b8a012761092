// Bytes an element: AdamW reads four values and writes three (28 in float32), SGD 12, or 20 with
// momentum; 15 and 4 flops. So memory limits both: at 3.3 TB/s, AdamW updates 118 G elements/s.
#include "tensor/cuda/optimizer.h"

#include "base/fixed_math.h"
#include "tensor/cuda/optimizer_update.h"

#include <cmath>

namespace fsdp::cuda {
namespace {

struct AdamW {
  static constexpr int states = 2;
  float decay, keep1, take1, keep2, take2, root, eps, rate;
  bool by_rate;

  __device__ void operator()(float& p, float g, float& m, float& v) const {
    if (by_rate) {
      p *= decay;
    } else {
      g += p * decay;
    }
    m = m * keep1 + g * take1;
    v = v * keep2 + g * g * take2;
    p = p - rate * m / (__fsqrt_rn(v) / root + eps);
  }
};

struct Sgd {
  static constexpr int states = 0;
  float rate;
  GradientDecay decay;

  __device__ void operator()(float& p, float g, float&, float&) const {
    p = p - rate * decay.of(g, p);
  }
};

struct Momentum {
  static constexpr int states = 1;
  float rate, keep;
  GradientDecay decay;
  bool first;

  __device__ void operator()(float& p, float g, float& buffer, float&) const {
    float direction = decay.of(g, p);
    if (!first) direction = buffer * keep + direction;
    buffer = direction;
    p = p - rate * direction;
  }
};

}  // namespace

template <class T>
void adamw(Stream stream, T* param, const T* grad, T* exp_avg, T* exp_avg_sq, std::int64_t n,
           const ops::AdamWStep& hyper) {
  // Scalars in double, rounded once, as in optimizer.cpp.
  const auto step = static_cast<double>(hyper.step);
  const double correction1 = 1 - fixed::pow(hyper.beta1, step);
  const double correction2 = 1 - fixed::pow(hyper.beta2, step);
  const bool by_rate = hyper.decays_by_rate;
  const auto rounded = [](double value) { return static_cast<float>(value); };
  const AdamW update{
      .decay = rounded(by_rate ? 1 - hyper.lr * hyper.weight_decay : hyper.weight_decay),
      .keep1 = rounded(hyper.beta1),
      .take1 = rounded(1 - hyper.beta1),
      .keep2 = rounded(hyper.beta2),
      .take2 = rounded(1 - hyper.beta2),
      .root = rounded(std::sqrt(correction2)),
      .eps = rounded(hyper.eps),
      .rate = rounded(hyper.lr / correction1),
      .by_rate = by_rate};
  update_all("adamw", stream, param, grad, exp_avg, exp_avg_sq, n, update);
}

template <class T>
void sgd(Stream stream, T* param, const T* grad, T* momentum_buffer, std::int64_t n,
         const ops::SgdStep& hyper) {
  const auto rate = static_cast<float>(hyper.lr);
  const GradientDecay decay(hyper.weight_decay);
  T* const none = nullptr;
  if (hyper.momentum == 0) {
    return update_all("sgd", stream, param, grad, none, none, n, Sgd{rate, decay});
  }
  const Momentum update{rate, static_cast<float>(hyper.momentum), decay, hyper.first};
  update_all("sgd", stream, param, grad, momentum_buffer, none, n, update);
}

#define FSDP_FOR(T)                                                                       \
  template void adamw(Stream, T*, const T*, T*, T*, std::int64_t, const ops::AdamWStep&); \
  template void sgd(Stream, T*, const T*, T*, std::int64_t, const ops::SgdStep&);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
