/// @file
/// @ingroup tensor
/// The operations of elementwise.cpp on CUDA memory, with the CPU's bits: float, BFloat16, Float16.
/// An output may be an input of the same call. A NaN stays one; which one is open.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/write.h"

#include <cstdint>

namespace fsdp::cuda {

template <class T>
void add(Stream stream, T* out, const T* a, const T* b, std::int64_t n);
template <class T>
void multiply(Stream stream, T* out, const T* a, const T* b, std::int64_t n, ops::Write write);
template <class T>
void write(Stream stream, T* out, const T* in, std::int64_t n, ops::Write write);
/// out *= factor, which is rounded to float32 first.
template <class T>
void scale(Stream stream, T* out, double factor, std::int64_t n);
/// out (rows, width) += row (width), for every row.
template <class T>
void add_row(Stream stream, T* out, const T* row, std::int64_t rows, std::int64_t width);
template <class T>
void relu(Stream stream, T* out, const T* in, std::int64_t n);
template <class T>
void relu_backward(Stream stream, T* din, const T* dout, const T* in, std::int64_t n,
                   ops::Write write);
template <class T>
void tanh(Stream stream, T* out, const T* in, std::int64_t n);
template <class T>
void tanh_backward(Stream stream, T* din, const T* dout, const T* out, std::int64_t n,
                   ops::Write write);

}  // namespace fsdp::cuda
