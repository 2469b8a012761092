/// @file
/// @ingroup tensor
/// The arithmetic of every optimizer, written once for the CPU's vectors and for CUDA's threads.
///
/// A rule updates a parameter and its first `kStates` states from the gradient. `Math` has the type
/// Value, of() which rounds a double to it, sqrt() and max(), which ignores a NaN in its second
/// argument. Scalars are computed in double and rounded once, which is what PyTorch does.
#pragma once

#include "base/fixed_math.h"
#include "base/host_device.h"
#include "tensor/optimizers.h"

#include <cmath>
#include <cstdint>

namespace fsdp::ops {

/// Adds weight_decay · param to the gradient, if there is a decay.
template <class Math>
struct GradientDecay {
  using Value = typename Math::Value;
  Value factor;
  bool decays;
  explicit GradientDecay(const Update& u)
      : factor(Math::of(u.options.weight_decay)), decays(u.options.weight_decay != 0) {}
  FSDP_DEVICE Value of(Value grad, Value param) const {
    return decays ? grad + param * factor : grad;
  }
};

/// 1 - beta^step: how much of a running mean that began at zero has been filled.
inline double filled(double beta, const Update& u) {
  return 1 - fixed::pow(beta, static_cast<double>(u.step));
}

/// Adam (Kingma and Ba 2015), and AdamW (Loshchilov and Hutter 2019), which multiplies the
/// parameter by 1 - lr · weight_decay instead.
template <class Math, bool DecaysByRate>
struct Adam {
  using Value = typename Math::Value;
  static constexpr int kStates = 2;
  Value decay, keep1, take1, keep2, take2, root, eps, rate;

  explicit Adam(const Update& u)
      : decay(Math::of(DecaysByRate ? 1 - u.lr * u.options.weight_decay : u.options.weight_decay)),
        keep1(Math::of(u.options.beta1)),
        take1(Math::of(1 - u.options.beta1)),
        keep2(Math::of(u.options.beta2)),
        take2(Math::of(1 - u.options.beta2)),
        root(Math::of(std::sqrt(filled(u.options.beta2, u)))),
        eps(Math::of(u.options.eps)),
        rate(Math::of(u.lr / filled(u.options.beta1, u))) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value& m, Value& v) const {
    if constexpr (DecaysByRate) {
      p *= decay;
    } else {
      g += p * decay;
    }
    m = m * keep1 + g * take1;
    v = v * keep2 + g * g * take2;
    p = p - rate * m / (Math::sqrt(v) / root + eps);
  }
};

/// Adamax (Kingma and Ba 2015): Adam with the largest gradient in place of their mean square.
template <class Math>
struct Adamax {
  using Value = typename Math::Value;
  static constexpr int kStates = 2;
  Value rate, eps, keep, take, fade;
  GradientDecay<Math> decay;

  explicit Adamax(const Update& u)
      : rate(Math::of(u.lr / filled(u.options.beta1, u))),
        eps(Math::of(u.options.eps)),
        keep(Math::of(u.options.beta1)),
        take(Math::of(1 - u.options.beta1)),
        fade(Math::of(u.options.beta2)),
        decay(u) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value& m, Value& largest) const {
    g = decay.of(g, p);
    m = m * keep + g * take;
    largest = Math::max(largest * fade, Math::max(g, -g) + eps);
    p = p - rate * m / largest;
  }
};

/// Adagrad (Duchi, Hazan and Singer 2011), in its elementwise form.
template <class Math>
struct Adagrad {
  using Value = typename Math::Value;
  static constexpr int kStates = 1;
  Value rate, eps;
  GradientDecay<Math> decay;

  explicit Adagrad(const Update& u)
      : rate(Math::of(u.lr / (1 + static_cast<double>(u.step - 1) * u.options.lr_decay))),
        eps(Math::of(u.options.eps)),
        decay(u) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value& sum, Value&) const {
    g = decay.of(g, p);
    sum = sum + g * g;
    p = p - rate * g / (Math::sqrt(sum) + eps);
  }
};

/// Adadelta (Zeiler 2012): running means of the squares of gradients, and of updates.
template <class Math>
struct Adadelta {
  using Value = typename Math::Value;
  static constexpr int kStates = 2;
  Value rate, eps, keep, take;
  GradientDecay<Math> decay;

  explicit Adadelta(const Update& u)
      : rate(Math::of(u.lr)),
        eps(Math::of(u.options.eps)),
        keep(Math::of(u.options.rho)),
        take(Math::of(1 - u.options.rho)),
        decay(u) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value& squares, Value& updates) const {
    g = decay.of(g, p);
    squares = squares * keep + g * g * take;
    const Value delta = Math::sqrt(updates + eps) / Math::sqrt(squares + eps) * g;
    updates = updates * keep + delta * delta * take;
    p = p - rate * delta;
  }
};

/// Lion (Chen et al. 2023): the sign of an interpolation between mean and gradient, times lr.
template <class Math>
struct Lion {
  using Value = typename Math::Value;
  static constexpr int kStates = 1;
  Value rate, decay, keep1, take1, keep2, take2;

  explicit Lion(const Update& u)
      : rate(Math::of(u.lr)),
        decay(Math::of(1 - u.lr * u.options.weight_decay)),
        keep1(Math::of(u.options.beta1)),
        take1(Math::of(1 - u.options.beta1)),
        keep2(Math::of(u.options.beta2)),
        take2(Math::of(1 - u.options.beta2)) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value& m, Value&) const {
    const Value zero{}, between = m * keep1 + g * take1;
    // Zero and NaN are their own sign.
    p = p * decay - (between > zero ? rate : (zero > between ? -rate : between));
    m = m * keep2 + g * take2;
  }
};

template <class Math>
struct Sgd {
  using Value = typename Math::Value;
  static constexpr int kStates = 0;
  Value rate;
  GradientDecay<Math> decay;

  explicit Sgd(const Update& u) : rate(Math::of(u.lr)), decay(u) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value&, Value&) const {
    p = p - rate * decay.of(g, p);
  }
};

template <class Math>
struct Momentum {
  using Value = typename Math::Value;
  static constexpr int kStates = 1;
  Value rate, keep;
  GradientDecay<Math> decay;
  bool is_first;  ///< the buffer is that step's gradient

  explicit Momentum(const Update& u)
      : rate(Math::of(u.lr)), keep(Math::of(u.options.momentum)), decay(u), is_first(u.step == 1) {}
  FSDP_DEVICE void operator()(Value& p, Value g, Value& buffer, Value&) const {
    g = decay.of(g, p);
    buffer = is_first ? g : buffer * keep + g;
    p = p - rate * buffer;
  }
};

/// Calls body(rule) with the rule of this update.
template <class Math, class Body>
void with_rule(const Update& update, Body body) {
  switch (update.rule) {
    case Rule::adamw:
      return body(Adam<Math, true>(update));
    case Rule::adam:
      return body(Adam<Math, false>(update));
    case Rule::adamax:
      return body(Adamax<Math>(update));
    case Rule::adagrad:
      return body(Adagrad<Math>(update));
    case Rule::adadelta:
      return body(Adadelta<Math>(update));
    case Rule::lion:
      return body(Lion<Math>(update));
    case Rule::sgd:
      if (update.options.momentum == 0) return body(Sgd<Math>(update));
      return body(Momentum<Math>(update));
  }
}

}  // namespace fsdp::ops
