// Bytes an element: what is read and what is written, e.g. 6 from float32 to bfloat16, and no flops
// but conversions. Memory limits all: 3.3 TB/s are 550 G elements/s of such a cast. A strided copy
// whose innermost strides are not 1 moves whole sectors of 32 bytes for each element.
#include "tensor/cuda/copy.h"

#include "base/half_floats.h"
#include "tensor/cuda/pointwise.h"

#include <bit>
#include <type_traits>

namespace fsdp::cuda {
namespace {

template <class T>
inline constexpr bool kIsDeviceHalf =
    std::is_same_v<T, Element<BFloat16>> || std::is_same_v<T, Element<Float16>>;

/// The same value as To, rounded once: converted() of copy.cpp.
template <class To, class From>
__device__ To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsDeviceHalf<From>) {
    return converted<To>(widen(value));
  } else if constexpr (kIsDeviceHalf<To> && std::is_integral_v<From>) {
    return narrow<To>(rounded_to_odd(static_cast<double>(value)));
  } else if constexpr (kIsDeviceHalf<To>) {
    return narrow<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class T, int Size>
struct Several {
  T values[Size];
};

/// from[0 … Size), by one load if there are four.
template <int Size, class T>
__device__ Several<T, Size> load_raw(const T* from) {
  Several<T, Size> result;
  if constexpr (Size == 4) {
    const auto four = *reinterpret_cast<const Four<T>*>(from);
    for (int j = 0; j < 4; ++j) result.values[j] = four.values[j];
  } else {
    result.values[0] = *from;
  }
  return result;
}
template <class T, int Size>
__device__ void store_raw(T* to, const Several<T, Size>& what) {
  if constexpr (Size == 4) {
    Four<T> four;
    for (int j = 0; j < 4; ++j) four.values[j] = what.values[j];
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    *to = what.values[0];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* out, T value, std::int64_t n, bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    Several<T, group.size> values;
    for (int j = 0; j < group.size; ++j) values.values[j] = value;
    store_raw(out + group.begin, values);
  });
}

// Four addresses of 8 bytes, and so many blocks at once, take more registers than some cards have.
template <class To, class From>
__global__ void __launch_bounds__(kThreads, sizeof(To) + sizeof(From) > 8 ? 4 : kBlocksAtOnce)
    copy_kernel(To* out, const From* in, std::int64_t n, bool vectorized) {
  for_groups(n, vectorized, [=](auto group) {
    const auto from = load_raw<group.size>(in + group.begin);
    Several<To, group.size> to;
    for (int j = 0; j < group.size; ++j) to.values[j] = converted<To>(from.values[j]);
    store_raw(out + group.begin, to);
  });
}

/// Elements in row-major order: each thread finds the place of its own, innermost dimension first.
template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    copy_strided_kernel(To* out, const From* in, StridedShape shape, std::int64_t n) {
  for_groups(n, false, [=](auto group) {
    std::int64_t rest = group.begin, to = 0, from = 0;
    for (int d = StridedShape::kMostDims - 1; d >= 0; --d) {
      if (d >= shape.dims) continue;
      const std::int64_t outer = rest / shape.extents[d];
      const std::int64_t index = rest - outer * shape.extents[d];
      to += index * shape.to_strides[d];
      from += index * shape.from_strides[d];
      rest = outer;
    }
    const To value = converted<To>(in[from]);
    out[to] = value;
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    equal_bits_kernel(std::int32_t* differ, const T* a, const T* b, std::int64_t n,
                      bool vectorized) {
  bool differs = false;
  for_groups(n, vectorized, [&](auto group) {
    const auto x = load_raw<group.size>(a + group.begin), y = load_raw<group.size>(b + group.begin);
    // No ||: nvcc would load the second element only if the first is equal, and so one by one.
    for (int j = 0; j < group.size; ++j) differs |= x.values[j] != y.values[j];
  });
  if (differs) atomicExch(differ, 1);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    all_finite_kernel(std::int32_t* found, const T* a, std::int64_t n, bool vectorized) {
  bool finite = true;
  for_groups(n, vectorized, [&](auto group) {
    float x[group.size];
    load(x, a + group.begin);
    for (int j = 0; j < group.size; ++j) finite &= x[j] - x[j] == 0;  // inf - inf is NaN
  });
  if (!finite) atomicExch(found, 1);
}

/// An integer of the size of T, which moves and compares bits.
template <class T>
using Pattern =
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
template <class T>
const Pattern<T>* pattern(const T* pointer) {
  return reinterpret_cast<const Pattern<T>*>(pointer);
}
template <class T>
Pattern<T>* pattern(T* pointer) {
  return reinterpret_cast<Pattern<T>*>(pointer);
}

}  // namespace

template <class T>
void fill(Stream stream, T* out, double value, std::int64_t n) {
  if (n == 0) return;
  launch("fill", blocks_for(n, 4), kThreads, 0, stream, fill_kernel<Pattern<T>>, pattern(out),
         std::bit_cast<Pattern<T>>(static_cast<T>(value)), n, is_aligned(out));
}

template <class To, class From>
void copy(Stream stream, To* out, const From* in, std::int64_t n) {
  if (n == 0) return;
  if constexpr (std::is_same_v<To, From>) {
    require(cudaMemcpyAsync(out, in, static_cast<std::size_t>(n) * sizeof(To),
                            cudaMemcpyDeviceToDevice, stream),
            "copy");
  } else {
    launch("copy", blocks_for(n, 4), kThreads, 0, stream, copy_kernel<Element<To>, Element<From>>,
           on_device(out), on_device(in), n, is_aligned(out) && is_aligned(in));
  }
}

template <class To, class From>
void copy_strided(Stream stream, To* out, const From* in, const StridedShape& shape) {
  std::int64_t n = 1;
  for (int d = 0; d < shape.dims; ++d) n *= shape.extents[d];
  if (n == 0) return;
  launch("copy_strided", blocks_for(n, 1), kThreads, 0, stream,
         copy_strided_kernel<Element<To>, Element<From>>, on_device(out), on_device(in), shape, n);
}

template <class T>
void equal_bits(Stream stream, std::int32_t* differ, const T* a, const T* b, std::int64_t n) {
  if (n == 0) return;
  launch("equal_bits", blocks_for(n, 4), kThreads, 0, stream, equal_bits_kernel<Pattern<T>>, differ,
         pattern(a), pattern(b), n, is_aligned(a) && is_aligned(b));
}

template <class T>
void all_finite(Stream stream, std::int32_t* found, const T* a, std::int64_t n) {
  if (n == 0) return;
  launch("all_finite", blocks_for(n, 4), kThreads, 0, stream, all_finite_kernel<Element<T>>, found,
         on_device(a), n, is_aligned(a));
}

#define FSDP_FOR_PAIR(To, From)                               \
  template void copy(Stream, To*, const From*, std::int64_t); \
  template void copy_strided(Stream, To*, const From*, const StridedShape&);
#define FSDP_FOR(T)                                                                  \
  template void fill(Stream, T*, double, std::int64_t);                              \
  template void equal_bits(Stream, std::int32_t*, const T*, const T*, std::int64_t); \
  FSDP_FOR_PAIR(T, float)                                                            \
  FSDP_FOR_PAIR(T, BFloat16)                                                         \
  FSDP_FOR_PAIR(T, Float16)                                                          \
  FSDP_FOR_PAIR(T, std::int32_t)                                                     \
  FSDP_FOR_PAIR(T, std::int64_t)
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
FSDP_FOR(std::int32_t)
FSDP_FOR(std::int64_t)
#undef FSDP_FOR
#undef FSDP_FOR_PAIR
template void all_finite(Stream, std::int32_t*, const float*, std::int64_t);
template void all_finite(Stream, std::int32_t*, const BFloat16*, std::int64_t);
template void all_finite(Stream, std::int32_t*, const Float16*, std::int64_t);

}  // namespace fsdp::cuda
