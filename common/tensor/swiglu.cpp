#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

namespace fsdp::ops {
namespace {

template <class T>
simd::Vec<T> sigmoid(simd::Vec<T> x) {
  const simd::Vec<T> one = simd::splat<T>(1);
  return one / (one + simd::exp<T>(-x));
}

}  // namespace

void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up) {
  Operands args("swiglu");
  args.expect_like("out", out, out.shape());
  args.expect_like("gate", gate, out.shape()).expect_like("up", up, out.shape());
  if (is_accelerated(args.device())) return accelerated<swiglu>(out, gate, up);
  args.compute(costs::swiglu(out.numel(), args.size()), [&]<class T>(T) {
    const T* g = gate.data<T>();
    const T* u = up.data<T>();
    T* to = out.data<T>();
    parallel_ranges(out.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
      simd::for_lanes<T>(end - begin, [=](std::int64_t i, auto count) {
        const auto gv = simd::load_n<T>(g + begin + i, count);
        const auto uv = simd::load_n<T>(u + begin + i, count);
        simd::store_n<T>(to + begin + i, gv * sigmoid<T>(gv) * uv, count);
      });
    });
  });
}

void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout, const Tensor& gate,
                     const Tensor& up) {
  Operands args("swiglu_backward");
  args.expect_like("dout", dout, dout.shape());
  args.expect_like("gate", gate, dout.shape()).expect_like("up", up, dout.shape());
  args.expect_like("dgate", dgate, dout.shape()).expect_like("dup", dup, dout.shape());
  if (is_accelerated(args.device()))
    return accelerated<swiglu_backward>(dgate, dup, dout, gate, up);
  args.compute(costs::swiglu_backward(dout.numel(), args.size()), [&]<class T>(T) {
    const T* dy = dout.data<T>();
    const T* g = gate.data<T>();
    const T* u = up.data<T>();
    T* dg = dgate.data<T>();
    T* du = dup.data<T>();
    parallel_ranges(dout.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
      simd::for_lanes<T>(end - begin, [=](std::int64_t k, auto count) {
        const std::int64_t i = begin + k;
        const auto gv = simd::load_n<T>(g + i, count);
        const auto uv = simd::load_n<T>(u + i, count);
        const auto dv = simd::load_n<T>(dy + i, count);
        const auto s = sigmoid<T>(gv);
        const auto silu = gv * s;
        // silu' = s + g s (1 - s) = s + silu (1 - s)
        simd::store_n<T>(dg + i, dv * uv * (s + silu * (simd::splat<T>(1) - s)), count);
        simd::store_n<T>(du + i, dv * silu, count);
      });
    });
  });
}

}  // namespace fsdp::ops
