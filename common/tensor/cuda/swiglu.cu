// Bytes an element: 3 forward, 5 backward, times its size; about 10 and 15 flops. So memory limits
// both: on a card of 3.3 TB/s, 12 bytes an element of float32 are 275 G elements/s.
#include "tensor/cuda/swiglu.h"

#include "tensor/cuda/pointwise.h"

namespace fsdp::cuda {
namespace {

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(T* out, const T* gate, const T* up, std::int64_t n, bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    const std::int64_t i = group.begin;
    float g[group.size], u[group.size], y[group.size];
    load(g, gate + i);
    load(u, up + i);
    for (int j = 0; j < group.size; ++j) y[j] = g[j] * sigmoid(g[j]) * u[j];
    store(out + i, y);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(T* dgate, T* dup, const T* dout, const T* gate, const T* up, std::int64_t n,
                    bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    const std::int64_t i = group.begin;
    float dy[group.size], g[group.size], u[group.size], dg[group.size], du[group.size];
    load(dy, dout + i);
    load(g, gate + i);
    load(u, up + i);
    for (int j = 0; j < group.size; ++j) {
      const float s = sigmoid(g[j]);
      const float silu = g[j] * s;
      dg[j] = dy[j] * u[j] * (s + silu * (1.0F - s));  // silu' = s + silu (1 - s)
      du[j] = dy[j] * silu;
    }
    store(dgate + i, dg);
    store(dup + i, du);
  });
}

}  // namespace

template <class T>
void swiglu(Stream stream, T* out, const T* gate, const T* up, std::int64_t n) {
  if (n == 0) return;
  const bool vectorized =
      is_aligned(on_device(out)) && is_aligned(on_device(gate)) && is_aligned(on_device(up));
  launch("swiglu", blocks_for(n, 4), kThreads, 0, stream, forward_kernel<Element<T>>,
         on_device(out), on_device(gate), on_device(up), n, vectorized);
}

template <class T>
void swiglu_backward(Stream stream, T* dgate, T* dup, const T* dout, const T* gate, const T* up,
                     std::int64_t n) {
  if (n == 0) return;
  const bool vectorized = is_aligned(on_device(dgate)) && is_aligned(on_device(dup)) &&
                          is_aligned(on_device(dout)) && is_aligned(on_device(gate)) &&
                          is_aligned(on_device(up));
  launch("swiglu_backward", blocks_for(n, 4), kThreads, 0, stream, backward_kernel<Element<T>>,
         on_device(dgate), on_device(dup), on_device(dout), on_device(gate), on_device(up), n,
         vectorized);
}

#define FSDP_FOR(T)                                                   \
  template void swiglu(Stream, T*, const T*, const T*, std::int64_t); \
  template void swiglu_backward(Stream, T*, T*, const T*, const T*, const T*, std::int64_t);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
