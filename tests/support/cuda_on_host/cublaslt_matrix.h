/// @file
/// What cuBLASLt's handles hold, and the product by its definition (see include/cublasLt.h).
#pragma once

#include "support/cuda_on_host/include/cublasLt.h"
#include "support/cuda_on_host/include/cuda_bf16.h"
#include "support/cuda_on_host/include/cuda_fp16.h"
#include "support/cuda_on_host/machine.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string>

struct cublasLtContext {
  std::set<std::string> products;  ///< of which shapes there was one: their kernels are loaded
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t stride;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch_count = 1;
  std::int64_t batch_stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_nbytes = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D, in bytes
};

namespace cuda_on_host {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Product = cublasLtMatmulDescOpaque_t;

inline std::size_t nbytes_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/// Reads and writes a matrix in device memory as double, which holds every type exactly.
struct Matrix {
  const Layout layout;
  char* begin;

  char* at(std::uint64_t row, std::uint64_t column) const {
    const auto stride = static_cast<std::uint64_t>(layout.stride);
    const auto place =
        layout.order == CUBLASLT_ORDER_COL ? column * stride + row : row * stride + column;
    return begin + place * nbytes_of(layout.type);
  }
  template <class T>
  T load(const char* from) const {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  double get(std::uint64_t row, std::uint64_t column) const {
    const char* from = at(row, column);
    switch (layout.type) {
      case CUDA_R_64F:
        return load<double>(from);
      case CUDA_R_32F:
        return static_cast<double>(load<float>(from));
      case CUDA_R_16F:
        return static_cast<double>(static_cast<float>(load<__half>(from)));
      case CUDA_R_16BF:
        return static_cast<double>(static_cast<float>(load<__nv_bfloat16>(from)));
    }
    return 0;
  }
  template <class T>
  void store(std::uint64_t row, std::uint64_t column, T value) const {
    std::memcpy(at(row, column), &value, sizeof value);
  }
  /// `value` is a float for all types but double.
  void set(std::uint64_t row, std::uint64_t column, double value) const {
    const auto narrow = static_cast<float>(value);
    switch (layout.type) {
      case CUDA_R_64F:
        return store(row, column, value);
      case CUDA_R_32F:
        return store(row, column, narrow);
      case CUDA_R_16F:
        return store(row, column, __half(narrow));
      case CUDA_R_16BF:
        return store(row, column, __nv_bfloat16(narrow));
    }
  }
  void touch_all(std::uint32_t operation, bool write) const {
    const bool by_columns = layout.order == CUBLASLT_ORDER_COL;
    const std::uint64_t runs = by_columns ? layout.columns : layout.rows;
    const std::uint64_t length = by_columns ? layout.rows : layout.columns;
    for (std::uint64_t i = 0; i < runs; ++i) {
      touch_or_fail(operation, by_columns ? at(0, i) : at(i, 0), length * nbytes_of(layout.type),
                    write);
    }
  }
};

template <class T>
void multiply(const Product& product, const Matrix& a, const Matrix& b, const Matrix& c,
              const Matrix& d, T alpha, T beta) {
  const bool across_a = product.transpose_a != CUBLAS_OP_N;
  const bool across_b = product.transpose_b != CUBLAS_OP_N;
  const std::uint64_t terms = across_a ? a.layout.rows : a.layout.columns;
  for (std::uint64_t i = 0; i < d.layout.rows; ++i) {
    for (std::uint64_t j = 0; j < d.layout.columns; ++j) {
      T sum = 0;
      // Not the CPU's order: a card does not have its bits, and a test must not rely on them.
      for (std::uint64_t k = terms; k-- > 0;) {
        const T x = static_cast<T>(across_a ? a.get(k, i) : a.get(i, k));
        const T y = static_cast<T>(across_b ? b.get(j, k) : b.get(k, j));
        sum = std::fma(x, y, sum);
      }
      T result = alpha * sum;
      if (beta != 0)
        result += beta * static_cast<T>(c.get(i, j));  // else C is not read: it may be NaN
      d.set(i, j, static_cast<double>(result));
    }
  }
}

}  // namespace cuda_on_host
