/// @file
/// @ingroup tensor
/// The kernel of every optimizer, for .cu files.
#pragma once

#include "tensor/cuda/pointwise.h"

namespace fsdp::cuda {

/// Calls update(param, grad, first, second) for each element, where `first` and `second` are its
/// state. The first Update::states of them are loaded and stored, as is param. The state is used
/// before it is rounded to T.
template <class T, class Update>
__global__ void __launch_bounds__(kThreads)
    update_kernel(T* param, const T* grad, T* first, T* second, std::int64_t n, Update update,
                  bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    const std::int64_t i = group.begin;
    float p[group.size], g[group.size], a[group.size] = {}, b[group.size] = {};
    load(p, param + i);
    load(g, grad + i);
    if constexpr (Update::states > 0) load(a, first + i);
    if constexpr (Update::states > 1) load(b, second + i);
    for (int j = 0; j < group.size; ++j) update(p[j], g[j], a[j], b[j]);
    store(param + i, p);
    if constexpr (Update::states > 0) store(first + i, a);
    if constexpr (Update::states > 1) store(second + i, b);
  });
}

/// State that an optimizer does not have is null.
template <class T, class Update>
void update_all(const char* name, Stream stream, T* param, const T* grad, T* first, T* second,
                std::int64_t n, Update update) {
  if (n == 0) return;
  const bool vectorized =
      is_aligned(param) && is_aligned(grad) && is_aligned(first) && is_aligned(second);
  launch(name, blocks_for(n, 4), kThreads, 0, stream, update_kernel<Element<T>, Update>,
         on_device(param), on_device(grad), on_device(first), on_device(second), n, update,
         vectorized);
}

/// Adds weight_decay · param to the gradient, if there is a decay.
struct GradientDecay {
  float factor;
  bool decays;
  explicit GradientDecay(double weight_decay)
      : factor(static_cast<float>(weight_decay)), decays(weight_decay != 0) {}
  __device__ float of(float grad, float param) const {
    return decays ? grad + param * factor : grad;
  }
};

}  // namespace fsdp::cuda
