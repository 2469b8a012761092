/// @file
/// @ingroup tensor
/// Products of matrices whose bits depend on nothing but the numbers.
///
/// Element (i, j) of a · b is defined as follows. The terms a(i, k) b(k, j) are taken in chunks of
/// kProductChunk, in the order of k. Within a chunk one chain of fused multiply-adds begins at
/// zero: s = fma(a(i, k), b(k, j), s). Then the sums of the chunks are added, one after another: to
/// the first of them (Write::set), or to what the output held (Write::add).
///
/// Operands of 16 bits are widened, and the element is rounded at the end, once.
///
/// Nothing else decides a bit: neither the number of threads, nor how the output is cut into
/// pieces, nor alignment, nor the width of a vector, nor the processor.
#pragma once

#include "device/thread_pool.h"
#include "tensor/ops.h"

#include <cstdint>

namespace fsdp::ops {

inline constexpr std::int64_t kProductChunk = 256;

/// A row-major matrix in memory, perhaps read transposed. Elements (row, column), and rows and
/// columns, are those after transposition.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t row_stride;  ///< of the matrix as it lies in memory
  bool transposed;

  const T* at(std::int64_t row, std::int64_t column) const {
    return transposed ? data + column * row_stride + row : data + row * row_stride + column;
  }
};

/// The output has `rows` × `columns` elements, each a sum of `depth` terms.
struct ProductExtents {
  std::int64_t rows, columns, depth;
};

/// The body of matmul() (ops.h), which stands beside it: c (row-major, without gaps) = or += a · b,
/// on the threads of `pool`. All extents are positive.
template <class T>
void product(ProductExtents extents, Matrix<T> a, Matrix<T> b, T* c, Write write, ThreadPool& pool);

}  // namespace fsdp::ops
