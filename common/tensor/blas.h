/// @file
/// @ingroup tensor
/// The BLAS call of matmul(), and the cut of a product into such calls.
#pragma once

#include "tensor/ops.h"

#include <cstdint>

namespace fsdp::ops {

/// How the output of a product is cut: row_blocks × column_blocks even blocks.
struct BlockPlan {
  std::int64_t row_blocks, column_blocks;
};

/// The cut for op(a) (m, k) · op(b) (k, n), a function of shapes alone. The bits of a block depend
/// on where it begins and ends (measured: OpenBLAS treats edges differently). So the cut must not
/// depend on the number of threads.
BlockPlan plan_blocks(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb);

/// Block `index` of [0, extent) cut into `blocks` near-even parts, at multiples of kBlockStep.
struct BlockRange {
  std::int64_t begin, end;
};
BlockRange block_range(std::int64_t extent, std::int64_t blocks, std::int64_t index);

}  // namespace fsdp::ops

namespace fsdp::ops::blas {

/// A row-major matrix in memory, perhaps read transposed.
template <class T>
struct Operand {
  const T* data;
  std::int64_t row_stride;  ///< of the matrix as it lies in memory
  bool transposed;

  /// The operand without its first `rows` rows (columns), after transposition.
  Operand rows_from(std::int64_t rows) const {
    return {data + rows * (transposed ? 1 : row_stride), row_stride, transposed};
  }
  Operand columns_from(std::int64_t columns) const {
    return {data + columns * (transposed ? row_stride : 1), row_stride, transposed};
  }
};

/// c (m, n; row stride ldc) = op(a) · op(b) + beta c, on the calling thread.
template <class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b, T beta, T* c,
          std::int64_t ldc);

}  // namespace fsdp::ops::blas
