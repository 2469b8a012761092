// Bytes an element in float32: those with two states read four values and write three (28), with
// one state 20, and with none 12; 4 to 16 flops. So memory limits all: at 3.3 TB/s, AdamW updates
// 118 G elements/s.
#include "tensor/cuda/optimizer.h"

#include "tensor/cuda/pointwise.h"
#include "tensor/optimizer_rules.h"

namespace fsdp::cuda {
namespace {

/// Blocks for which a multiprocessor must have registers: 48 for a thread. Left to itself, ptxas
/// gives one kernel 32 on sm_100, with which it spills.
[[maybe_unused]] constexpr int kUpdatesAtOnce = 5;  // the stand-in has no launch bounds

/// The Math of optimizer_rules.h over one element.
struct ElementMath {
  using Value = float;
  static float of(double value) { return static_cast<float>(value); }
  __device__ static float sqrt(float value) { return __fsqrt_rn(value); }
  __device__ static float max(float a, float b) { return b > a ? b : a; }
};

}  // namespace

/// Calls rule(param, grad · mean · clip, first, second) for each element, where `first` and
/// `second` are its state. The first Rule::kStates of them are loaded and stored, as is param. The
/// state is used before it is rounded to T.
template <class T, class Rule>
__global__ void __launch_bounds__(kThreads, kUpdatesAtOnce)
    update_kernel(T* param, const T* grad, T* first, T* second, std::int64_t n, Rule rule,
                  float mean, float clip, bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    const std::int64_t i = group.begin;
    float p[group.size], g[group.size], a[group.size] = {}, b[group.size] = {};
    load(p, param + i);
    load(g, grad + i);
    if constexpr (Rule::kStates > 0) load(a, first + i);
    if constexpr (Rule::kStates > 1) load(b, second + i);
    for (int j = 0; j < group.size; ++j) {
      rule(p[j], widen(narrow<T>(widen(narrow<T>(g[j] * mean)) * clip)), a[j], b[j]);
    }
    store(param + i, p);
    if constexpr (Rule::kStates > 0) store(first + i, a);
    if constexpr (Rule::kStates > 1) store(second + i, b);
  });
}

template <class T>
void update(const char* name, Stream stream, T* param, const T* grad, T* first, T* second,
            std::int64_t n, const ops::Update& how) {
  if (n == 0) return;
  const bool vectorized =
      is_aligned(param) && is_aligned(grad) && is_aligned(first) && is_aligned(second);
  ops::with_rule<ElementMath>(how, [&]<class Rule>(const Rule& rule) {
    launch(name, blocks_for(n, 4), kThreads, 0, stream, update_kernel<Element<T>, Rule>,
           on_device(param), on_device(grad), on_device(first), on_device(second), n, rule,
           static_cast<float>(how.mean_factor), static_cast<float>(how.clip_factor), vectorized);
  });
}

#define FSDP_FOR(T) \
  template void update(const char*, Stream, T*, const T*, T*, T*, std::int64_t, const ops::Update&);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
