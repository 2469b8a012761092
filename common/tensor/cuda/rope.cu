// Bytes an element: 2 times its size, and the tables' once per position (the heads of a position
// find them in the cache); 3 flops. So memory limits it: on a card of 3.3 TB/s, 4 bytes an element
// of bfloat16 are 825 G elements/s. The CPU does the same operations, so the bits are its bits.
#include "tensor/cuda/rope.h"

#include "tensor/cuda/rows.h"

namespace fsdp::cuda {
namespace {

// A block per position; a thread takes four pairs (i, i + pairs) of a head at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotate_kernel(T* x, const float* cos, const float* sin, float sign, std::int64_t length,
                  std::int64_t heads, std::int64_t pairs) {
  const std::int64_t row = blockIdx.x, position = row % length;
  const std::int64_t fours = (pairs + 3) / 4;
  for (std::int64_t each = threadIdx.x; each < heads * fours; each += blockDim.x) {
    const std::int64_t i = each % fours * 4, left = pairs - i;
    T* first = x + (row * heads + each / fours) * 2 * pairs + i;
    T* second = first + pairs;
    float c[4], s[4], a[4], b[4], to_first[4], to_second[4];
    load_four(c, cos + position * pairs + i, left);
    load_four(s, sin + position * pairs + i, left);
    load_four(a, first, left);
    load_four(b, second, left);
    for (int j = 0; j < 4; ++j) {
      const float sine = s[j] * sign;
      to_first[j] = a[j] * c[j] - b[j] * sine;
      to_second[j] = b[j] * c[j] + a[j] * sine;
    }
    store_four(first, to_first, left);
    store_four(second, to_second, left);
  }
}

}  // namespace

template <class T>
void rope(Stream stream, T* x, const float* cos, const float* sin, bool inverse, std::int64_t batch,
          std::int64_t length, std::int64_t heads, std::int64_t width) {
  if (batch * length * heads * width == 0) return;
  const std::int64_t warps = (heads * width / 2 + 127) / 128;  // a lane takes four pairs at a time
  const auto threads = 32 * static_cast<unsigned>(std::min<std::int64_t>(warps, kThreads / 32));
  launch("rope", static_cast<unsigned>(batch * length), threads, 0, stream,
         rotate_kernel<Element<T>>, on_device(x), cos, sin, inverse ? -1.0F : 1.0F, length, heads,
         width / 2);
}

template void rope(Stream, float*, const float*, const float*, bool, std::int64_t, std::int64_t,
                   std::int64_t, std::int64_t);
template void rope(Stream, BFloat16*, const float*, const float*, bool, std::int64_t, std::int64_t,
                   std::int64_t, std::int64_t);
template void rope(Stream, Float16*, const float*, const float*, bool, std::int64_t, std::int64_t,
                   std::int64_t, std::int64_t);

}  // namespace fsdp::cuda
