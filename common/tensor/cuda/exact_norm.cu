// Bytes an element: 4. About 20 operations on integers and one or two shuffles, so memory limits
// it: at 3.3 TB/s, 825 G elements/s. A square far below the largest of its 512 neighbors costs two
// atomics in shared memory; such squares are rare in a gradient.
#include "tensor/cuda/exact_norm.h"

#include "tensor/cuda/pointwise.h"

namespace fsdp::cuda {
namespace {

constexpr int kExponents = 256, kCounters = 2 * kExponents + 2;  // as in exact_norm.h
constexpr int kInfinities = 2 * kExponents, kNans = kInfinities + 1;
constexpr unsigned kWarp = 0xffffffffU;
constexpr int kQuads = 4;  // loads of a thread before the first addition

using Count = unsigned long long;

/// `units` · 2^(2 (exponent - 150)), in the two limbs of its counter.
__device__ void add_units(Count* counters, int exponent, Count units) {
  if (units == 0) return;
  atomicAdd(&counters[exponent], units & 0xffffff);
  atomicAdd(&counters[kExponents + exponent], units >> 24);
}

/// A float as mantissa · 2^(exponent - 150). Subnormal numbers have the exponent 0, whose counter
/// has the unit of that of 1.
struct Parts {
  unsigned exponent;  // 0 … 255
  unsigned mantissa;  // 24 bits
  __device__ explicit Parts(float value) {
    const unsigned bits = __float_as_uint(value);
    exponent = bits >> 23 & 0xff;
    mantissa = (bits & 0x7fffff) | (exponent == 0 ? 0 : 0x800000);
  }
  __device__ Count square() const { return static_cast<Count>(mantissa) * mantissa; }
};

/// The squares of a thread's values and those of its warp, in two units:
///
///     square   |<-- upper: 2^(2 top) -->|<-- lower, 40 bits: 2^(2 (top - 20)) -->|
///
/// `top` is the largest exponent of the warp. A square less than a lower unit in its last bits goes
/// to a counter of its own at once.
__device__ void add_quads(Count* counters, const float (&values)[kQuads][4]) {
  unsigned top = 0;
  for (int q = 0; q < kQuads; ++q) {
    for (int j = 0; j < 4; ++j) {
      const unsigned exponent = Parts(values[q][j]).exponent;
      if (exponent > top) top = exponent;
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const unsigned other = __shfl_xor_sync(kWarp, top, distance);
    top = other > top ? other : top;
  }
  const unsigned bottom = top > 20 ? top - 20 : 1;
  Count upper = 0, lower = 0;  // below 2^53, of a warp
  for (int q = 0; q < kQuads; ++q) {
    for (int j = 0; j < 4; ++j) {
      const Parts parts(values[q][j]);
      if (parts.exponent == 0xff) {
        atomicAdd(&counters[parts.mantissa == 0x800000 ? kInfinities : kNans], Count{1});
      } else if (parts.exponent < bottom) {
        add_units(counters, static_cast<int>(parts.exponent), parts.square());
      } else {
        const unsigned shift = 2 * (parts.exponent - bottom);  // 40 at most
        upper += parts.square() >> (40 - shift);
        lower += parts.square() << shift & 0xffffffffffULL;
      }
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    upper += __shfl_xor_sync(kWarp, upper, distance);
    lower += __shfl_xor_sync(kWarp, lower, distance);
  }
  if (threadIdx.x % 32 != 0) return;
  add_units(counters, static_cast<int>(bottom), lower);
  add_units(counters, static_cast<int>(bottom) + 20, upper);
}

__global__ void __launch_bounds__(kThreads)
    add_squares_kernel(Count* counters, const float* values, std::int64_t n, float factor,
                       bool vectorized) {
  __shared__ Count block_counters[kCounters];
  for (int c = static_cast<int>(threadIdx.x); c < kCounters; c += kThreads) block_counters[c] = 0;
  __syncthreads();
  // A warp takes 128 values by one load of each lane, kQuads times.
  constexpr std::int64_t kPiece = std::int64_t{4} * kThreads * kQuads;
  const std::int64_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (std::int64_t begin = blockIdx.x * kPiece; begin < n; begin += gridDim.x * kPiece) {
    float loaded[kQuads][4];
    for (int q = 0; q < kQuads; ++q) {
      const std::int64_t i = begin + ((warp * kQuads + q) * 32 + lane) * 4;
      if (vectorized && i + 4 <= n) {
        load(loaded[q], values + i);
      } else {
        for (int j = 0; j < 4; ++j) loaded[q][j] = i + j < n ? values[i + j] : 0.0F;
      }
      for (int j = 0; j < 4; ++j) loaded[q][j] *= factor;
    }
    add_quads(block_counters, loaded);
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kCounters; c += kThreads) {
    if (block_counters[c] != 0) atomicAdd(&counters[c], block_counters[c]);
  }
}

}  // namespace

void add_exact_squares(Stream stream, std::int64_t* counters, const float* values, std::int64_t n,
                       float factor) {
  if (n == 0) return;
  // Integers add exactly in any order, and two's complement adds alike with and without a sign.
  static_assert(sizeof(Count) == sizeof(std::int64_t));
  const unsigned blocks = std::min(blocks_for(n, 4 * kQuads), 1024U);
  launch("add_exact_squares", blocks, kThreads, 0, stream, add_squares_kernel,
         reinterpret_cast<Count*>(counters), values, n, factor, is_aligned(values));
}

}  // namespace fsdp::cuda
