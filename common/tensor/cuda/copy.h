/// @file
/// @ingroup tensor
/// The operations of copy.cpp on CUDA memory, with the CPU's bits. Elements are float, BFloat16,
/// Float16, std::int32_t or std::int64_t unless noted.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace fsdp::cuda {

/// `value` is rounded to T once.
template <class T>
void fill(Stream stream, T* out, double value, std::int64_t n);

/// out = in, converted as on the CPU: rounded once, to nearest, ties to even. A NaN stays one, and
/// between equal types all bits stay. As in C++, a floating value must fit the integers.
template <class To, class From>
void copy(Stream stream, To* out, const From* in, std::int64_t n);

/// One shape with the strides of two tensors of it, in elements, outermost dimension first.
struct StridedShape {
  static constexpr int kMostDims = 8;
  int dims = 0;
  std::int64_t extents[kMostDims] = {}, to_strides[kMostDims] = {}, from_strides[kMostDims] = {};
};
/// copy() between tensors of any strides.
template <class To, class From>
void copy_strided(Stream stream, To* out, const From* in, const StridedShape& shape);

/// Sets *differ to 1 if a bit of a and b differs, and leaves it as it is otherwise. The caller sets
/// it to 0 before, on the same stream, and reads it after a wait.
template <class T>
void equal_bits(Stream stream, std::int32_t* differ, const T* a, const T* b, std::int64_t n);

/// Sets *found to 1 if an element is infinite or NaN, and leaves it as it is otherwise, like
/// equal_bits(). float, BFloat16, Float16.
template <class T>
void all_finite(Stream stream, std::int32_t* found, const T* a, std::int64_t n);

}  // namespace fsdp::cuda
