// Bytes an element: its size (fill_with), or twice that; a flop at most. So memory limits both. On
// a card of 3.3 TB/s, the 8 bytes of scale_by in float32 are 410 G elements/s.
#include "tensor/cuda/scalar.h"

#include "tensor/cuda/pointwise.h"

namespace fsdp::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* out, const float* value, std::int64_t n, bool vectorized) {
  const float one = *value;
  for_groups(n, vectorized, [=](auto group) {
    float values[group.size];
    for (int j = 0; j < group.size; ++j) values[j] = one;
    store(out + group.begin, values);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(T* out, const float* factor, double times, double over, std::int64_t n,
                 bool vectorized) {
  const auto by = static_cast<float>(static_cast<double>(*factor) * times / over);
  if (by == 1) return;
  for_groups(n, vectorized, [=](auto group) {
    float values[group.size];
    load(values, out + group.begin);
    for (int j = 0; j < group.size; ++j) values[j] *= by;
    store(out + group.begin, values);
  });
}

}  // namespace

template <class T>
void fill_with(Stream stream, T* out, const float* value, std::int64_t n) {
  if (n == 0) return;
  launch("fill_with", blocks_for(n, 4), kThreads, 0, stream, fill_kernel<Element<T>>,
         on_device(out), value, n, is_aligned(on_device(out)));
}

template <class T>
void scale_by(Stream stream, T* out, const float* factor, double times, double over,
              std::int64_t n) {
  if (n == 0) return;
  launch("scale_by", blocks_for(n, 4), kThreads, 0, stream, scale_kernel<Element<T>>,
         on_device(out), factor, times, over, n, is_aligned(on_device(out)));
}

#define FSDP_FOR(T)                                                \
  template void fill_with(Stream, T*, const float*, std::int64_t); \
  template void scale_by(Stream, T*, const float*, double, double, std::int64_t);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
