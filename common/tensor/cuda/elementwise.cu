// Bytes an element: 2 to 4 times its size (inputs, output, the output before it is added to), and a
// flop or three. So memory limits all but tanh: on a card of 3.3 TB/s, the 12 bytes of a sum of two
// in float32 are 275 G elements/s. tanh takes about 60 flops in float64, which is as fast where
// float64 has half the rate of float32, and the limit elsewhere.
#include "tensor/cuda/elementwise.h"

#include "base/fixed_formulas.h"
#include "tensor/cuda/pointwise.h"

namespace fsdp::cuda {
namespace {

/// What is computed of one element of each input. A unary operation ignores the second.
struct Sum {
  static constexpr bool is_binary = true;
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Product {
  static constexpr bool is_binary = true;
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Same {
  static constexpr bool is_binary = false;
  __device__ float operator()(float a, float) const { return a; }
};
struct Scaled {
  static constexpr bool is_binary = false;
  float factor;
  __device__ float operator()(float a, float) const { return a * factor; }
};
struct Relu {
  static constexpr bool is_binary = false;
  __device__ float operator()(float a, float) const { return a <= 0 ? 0.0F : a; }  // a NaN stays
};
struct ReluBackward {
  static constexpr bool is_binary = true;
  __device__ float operator()(float dout, float in) const { return in > 0 ? dout : 0.0F; }
};
struct Tanh {
  static constexpr bool is_binary = false;
  __device__ float operator()(float a, float) const {
    return static_cast<float>(fixed::formulas::tanh(static_cast<double>(a)));
  }
};
struct TanhBackward {
  static constexpr bool is_binary = true;
  __device__ float operator()(float dout, float out) const { return dout * (1.0F - out * out); }
};

template <class T, class Op>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    map_kernel(T* out, const T* a, const T* b, std::int64_t n, Op op, bool adds, bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    const std::int64_t i = group.begin;
    float x[group.size], y[group.size] = {}, before[group.size] = {};
    load(x, a + i);
    if constexpr (Op::is_binary) load(y, b + i);
    if (adds) load(before, out + i);
    for (int j = 0; j < group.size; ++j) {
      const float value = op(x[j], y[j]);
      x[j] = adds ? before[j] + value : value;
    }
    store(out + i, x);
  });
}

template <class T, class Op>
void map(const char* name, Stream stream, T* out, const T* a, const T* b, std::int64_t n, Op op,
         ops::Write mode = ops::Write::set) {
  if (n == 0) return;
  const bool vectorized = is_aligned(out) && is_aligned(a) && is_aligned(b);
  launch(name, blocks_for(n, 4), kThreads, 0, stream, map_kernel<Element<T>, Op>, on_device(out),
         on_device(a), on_device(b), n, op, mode == ops::Write::add, vectorized);
}

constexpr int kRowThreads = 32, kRowsAtOnce = kThreads / kRowThreads;

/// A thread keeps the values of its columns and adds them to row after row.
template <int Size, class T>
__global__ void __launch_bounds__(kThreads)
    add_row_kernel(T* out, const T* row, std::int64_t rows, std::int64_t width) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kRowThreads * Size;
  for (std::int64_t j = (blockIdx.x * kRowThreads + threadIdx.x) * Size; j < width; j += step) {
    float addend[Size];
    load(addend, row + j);
    for (std::int64_t r = blockIdx.y * kRowsAtOnce + threadIdx.y; r < rows;
         r += gridDim.y * kRowsAtOnce) {
      float x[Size];
      load(x, out + r * width + j);
      for (int k = 0; k < Size; ++k) x[k] += addend[k];
      store(out + r * width + j, x);
    }
  }
}

}  // namespace

template <class T>
void add(Stream stream, T* out, const T* a, const T* b, std::int64_t n) {
  map("add", stream, out, a, b, n, Sum{});
}

template <class T>
void multiply(Stream stream, T* out, const T* a, const T* b, std::int64_t n, ops::Write write) {
  map("multiply", stream, out, a, b, n, Product{}, write);
}

template <class T>
void write(Stream stream, T* out, const T* in, std::int64_t n, ops::Write write) {
  map("write", stream, out, in, in, n, Same{}, write);
}

template <class T>
void scale(Stream stream, T* out, double factor, std::int64_t n) {
  map<T>("scale", stream, out, out, out, n, Scaled{static_cast<float>(factor)});
}

template <class T>
void add_row(Stream stream, T* out, const T* row, std::int64_t rows, std::int64_t width) {
  if (rows == 0 || width == 0) return;
  const bool vectorized = width % 4 == 0 && is_aligned(out) && is_aligned(row);
  const auto blocks = [](std::int64_t n, std::int64_t each, std::int64_t most) {
    return static_cast<unsigned>(std::min((n + each - 1) / each, most));
  };
  const unsigned across = blocks(width, kRowThreads * (vectorized ? 4 : 1), 4096);
  const dim3 grid(across, blocks(rows, kRowsAtOnce, std::max(1U, 4096 / across)));
  launch("add_row", grid, dim3(kRowThreads, kRowsAtOnce), 0, stream,
         vectorized ? add_row_kernel<4, Element<T>> : add_row_kernel<1, Element<T>>, on_device(out),
         on_device(row), rows, width);
}

template <class T>
void relu(Stream stream, T* out, const T* in, std::int64_t n) {
  map("relu", stream, out, in, in, n, Relu{});
}

template <class T>
void relu_backward(Stream stream, T* din, const T* dout, const T* in, std::int64_t n,
                   ops::Write write) {
  map("relu_backward", stream, din, dout, in, n, ReluBackward{}, write);
}

template <class T>
void tanh(Stream stream, T* out, const T* in, std::int64_t n) {
  map("tanh", stream, out, in, in, n, Tanh{});
}

template <class T>
void tanh_backward(Stream stream, T* din, const T* dout, const T* out, std::int64_t n,
                   ops::Write write) {
  map("tanh_backward", stream, din, dout, out, n, TanhBackward{}, write);
}

#define FSDP_FOR(T)                                                                      \
  template void add(Stream, T*, const T*, const T*, std::int64_t);                       \
  template void multiply(Stream, T*, const T*, const T*, std::int64_t, ops::Write);      \
  template void write(Stream, T*, const T*, std::int64_t, ops::Write);                   \
  template void scale(Stream, T*, double, std::int64_t);                                 \
  template void add_row(Stream, T*, const T*, std::int64_t, std::int64_t);               \
  template void relu(Stream, T*, const T*, std::int64_t);                                \
  template void relu_backward(Stream, T*, const T*, const T*, std::int64_t, ops::Write); \
  template void tanh(Stream, T*, const T*, std::int64_t);                                \
  template void tanh_backward(Stream, T*, const T*, const T*, std::int64_t, ops::Write);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
