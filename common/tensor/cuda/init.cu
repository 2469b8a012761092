// Bytes an element: its size. Operations: 5 wide products of integers, a quarter of a block of
// Philox, and for a normal value about 40 flops in float64, divisions among them. Integers limit a
// uniform draw and float64 a normal one: 30 Tflop/s are 750 G elements/s at most. A parameter is
// drawn once.
#include "tensor/cuda/init.h"

#include "base/half_floats.h"
#include "base/philox_block.h"
#include "tensor/cuda/pointwise.h"
#include "tensor/quantile_formula.h"

namespace fsdp::cuda {
namespace {

/// The middle of one of 2^24 equal parts of (0, 1), as in init.cpp.
__device__ double uniform_of(std::uint32_t word) {
  return (static_cast<double>(word >> 8) + 0.5) * 0x1p-24;
}

struct Uniform {
  double low, width;
  __device__ double operator()(std::uint32_t word) const { return low + uniform_of(word) * width; }
};
struct TruncatedNormal {
  double mean, std, mass;
  __device__ double operator()(std::uint32_t word) const {
    return mean + std * normal_quantile_formula((2 * uniform_of(word) - 1) * mass);
  }
};

/// Rounded to T once.
template <class T>
__device__ float before_narrowing(double value) {
  return sizeof(T) == 2 ? rounded_to_odd(value) : static_cast<float>(value);
}

/// A thread draws the four words of a block of Philox, or those of them that the slice has.
template <class T, class Value>
__global__ void __launch_bounds__(kThreads)
    draw_kernel(T* out, std::int64_t n, std::uint64_t seed, std::uint64_t first_block,
                std::int64_t before, std::int64_t blocks, Value value, bool vectorized) {
  const auto threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       block < blocks; block += threads) {
    const PhiloxBlock random = random_block(seed, first_block + static_cast<std::uint64_t>(block));
    const std::int64_t begin = 4 * block - before;  // the place of the first word
    float values[4];
    for (int k = 0; k < 4; ++k) values[k] = before_narrowing<T>(value(random.words[k]));
    if (vectorized && begin >= 0 && begin + 4 <= n) {
      store(out + begin, values);
      continue;
    }
    for (int k = 0; k < 4; ++k) {
      if (begin + k >= 0 && begin + k < n) out[begin + k] = narrow<T>(values[k]);
    }
  }
}

template <class T, class Value>
void draw(const char* name, Stream stream, T* out, std::int64_t n, std::uint64_t seed,
          std::uint64_t first, Value value) {
  if (n == 0) return;
  const auto before = static_cast<std::int64_t>(first % 4);  // words of the first block to skip
  const std::int64_t blocks = (before + n + 3) / 4;
  launch(name, blocks_for(blocks, 1), kThreads, 0, stream, draw_kernel<Element<T>, Value>,
         on_device(out), n, seed, first / 4, before, blocks, value, is_aligned(out - before));
}

}  // namespace

template <class T>
void draw_uniform(Stream stream, T* out, std::int64_t n, std::uint64_t seed, std::uint64_t first,
                  double low, double width) {
  draw("draw_uniform", stream, out, n, seed, first, Uniform{low, width});
}

template <class T>
void draw_truncated_normal(Stream stream, T* out, std::int64_t n, std::uint64_t seed,
                           std::uint64_t first, double mean, double std, double mass) {
  draw("draw_truncated_normal", stream, out, n, seed, first, TruncatedNormal{mean, std, mass});
}

#define FSDP_FOR(T)                                                                           \
  template void draw_uniform(Stream, T*, std::int64_t, std::uint64_t, std::uint64_t, double,  \
                             double);                                                         \
  template void draw_truncated_normal(Stream, T*, std::int64_t, std::uint64_t, std::uint64_t, \
                                      double, double, double);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
