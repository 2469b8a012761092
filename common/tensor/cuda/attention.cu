// Which kernels attention runs on.
#include "tensor/cuda/attention.h"

#include "tensor/cuda/attention_extents.h"

#include <type_traits>

namespace fsdp::cuda {
namespace {

void check_width(const char* name, const AttentionExtents& e) {
  if (e.width > kWidestHead)
    fail_call(name, "a head is wider than the kernels have room for (256)");
}

}  // namespace

template <class T>
void attention(Stream stream, T* out, float* lse, const T* q, const T* k, const T* v,
               const AttentionExtents& e) {
  check_width("attention", e);
  if (e.batch * e.queries == 0) return;
  if constexpr (!std::is_same_v<T, float>) {
    if (e.width <= kWidestOnTensorCores) {
      attention_tensor_cores(stream, out, lse, q, k, v, e);
      return;
    }
  }
  attention_plain(stream, out, lse, q, k, v, e);
}

template <class T>
void attention_backward(Stream stream, T* dq, T* dk, T* dv, const T* dout, const T* out,
                        const float* lse, const T* q, const T* k, const T* v,
                        const AttentionExtents& e) {
  check_width("attention_backward", e);
  if (e.batch * e.length == 0) return;
  if constexpr (!std::is_same_v<T, float>) {
    if (e.width <= kWidestOnTensorCores) {
      attention_backward_tensor_cores(stream, dq, dk, dv, dout, out, lse, q, k, v, e);
      return;
    }
  }
  attention_backward_plain(stream, dq, dk, dv, dout, out, lse, q, k, v, e);
}

#define FSDP_FOR(T)                                                                                \
  template void attention(Stream, T*, float*, const T*, const T*, const T*,                        \
                          const AttentionExtents&);                                                \
  template void attention_backward(Stream, T*, T*, T*, const T*, const T*, const float*, const T*, \
                                   const T*, const T*, const AttentionExtents&);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
