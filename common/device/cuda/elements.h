/// @file
/// @ingroup device
/// Elements as kernels see them: loaded four at a time, computed in float32, rounded once.
#pragma once

#include "base/half_floats.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fsdp::cuda {

/// CUDA's type with the bytes of the library's: float itself, __nv_bfloat16, __half.
template <class T>
struct DeviceType {
  using Type = T;
};
template <>
struct DeviceType<BFloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct DeviceType<Float16> {
  using Type = __half;
};
template <class T>
using Element = typename DeviceType<T>::Type;

/// The same address, for a kernel.
template <class T>
Element<T>* on_device(T* pointer) {
  return reinterpret_cast<Element<T>*>(pointer);
}
template <class T>
const Element<T>* on_device(const T* pointer) {
  return reinterpret_cast<const Element<T>*>(pointer);
}

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(__half value) { return __half2float(value); }

template <class T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half narrow<__half>(float value) {
  return __float2half_rn(value);
}

/// Four elements, loaded or stored by one instruction: 16 bytes, or 8 of 16-bit floats.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

/// True if `pointer` can be loaded as Four<T>.
template <class T>
__host__ __device__ bool is_aligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Four<T>) == 0;
}

}  // namespace fsdp::cuda
