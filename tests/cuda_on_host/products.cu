#include "cuda_on_host/products.h"

#include "cuda_on_host/device_checks.h"

#include <cublasLt.h>
#include <mma.h>

#include <memory>
#include <type_traits>

namespace {

namespace wmma = nvcuda::wmma;

template <class T>
__global__ void multiply_tile_kernel(float* c, const T* a, const T* b, int threads) {
  if (static_cast<int>(threadIdx.x) >= threads) return;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::load_matrix_sync(left, a, 16);
  wmma::load_matrix_sync(right, b, 16);
  wmma::load_matrix_sync(sum, c, 16, wmma::mem_row_major);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

__global__ void round_to_half_kernel(__half* out, const float* in, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = __float2half_rn(in[i]);
}

// Two at a time, and the last one alone.
__global__ void round_to_bfloat16_kernel(__nv_bfloat16* out, const float* in, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 2;
  if (i + 1 < n) {
    *reinterpret_cast<__nv_bfloat162*>(out + i) = __floats2bfloat162_rn(in[i], in[i + 1]);
  } else if (i < n) {
    out[i] = __float2bfloat16_rn(in[i]);
  }
}

void require(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLASLt refused");
}

struct Destroy {
  void operator()(cublasLtHandle_t it) const { cublasLtDestroy(it); }
  void operator()(cublasLtMatmulDesc_t it) const { cublasLtMatmulDescDestroy(it); }
  void operator()(cublasLtMatrixLayout_t it) const { cublasLtMatrixLayoutDestroy(it); }
  void operator()(cublasLtMatmulPreference_t it) const { cublasLtMatmulPreferenceDestroy(it); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

/// Calls a function that makes a Handle, and owns what it made.
template <class Handle, class Create, class... Arguments>
Owned<Handle> make(Create create, Arguments... arguments) {
  Handle made = nullptr;
  require(create(&made, arguments...));
  return Owned<Handle>(made);
}

Owned<cublasLtMatrixLayout_t> layout(cudaDataType_t type, int rows, int columns) {
  return make<cublasLtMatrixLayout_t>(cublasLtMatrixLayoutCreate, type,
                                      static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), rows);
}

// Rows of a matrix are columns of its transpose: what is computed is bᵀ·aᵀ = (a·b)ᵀ by columns.
void multiply_as(cudaDataType_t type, cudaStream_t stream, void* c, const void* a, const void* b,
                 int m, int n, int k, void* workspace, std::size_t workspace_nbytes) {
  const auto handle = make<cublasLtHandle_t>(cublasLtCreate);
  const auto product =
      make<cublasLtMatmulDesc_t>(cublasLtMatmulDescCreate, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t as_it_is = CUBLAS_OP_N;
  require(cublasLtMatmulDescSetAttribute(product.get(), CUBLASLT_MATMUL_DESC_TRANSA, &as_it_is,
                                         sizeof as_it_is));
  const auto preference = make<cublasLtMatmulPreference_t>(cublasLtMatmulPreferenceCreate);
  require(cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                               CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_nbytes, sizeof workspace_nbytes));
  const auto left = layout(type, n, k), right = layout(type, k, m), result = layout(type, n, m);
  cublasLtMatmulHeuristicResult_t chosen = {};
  int count = 0;
  require(cublasLtMatmulAlgoGetHeuristic(handle.get(), product.get(), left.get(), right.get(),
                                         result.get(), result.get(), preference.get(), 1, &chosen,
                                         &count));
  const float alpha = 1, beta = 0;
  require(cublasLtMatmul(handle.get(), product.get(), &alpha, b, left.get(), a, right.get(), &beta,
                         c, result.get(), c, result.get(), &chosen.algo, workspace,
                         workspace_nbytes, stream));
}

}  // namespace

namespace samples {

void multiply_tile(cudaStream_t stream, float* c, const __half* a, const __half* b) {
  launch(1, 32, 0, stream, multiply_tile_kernel<__half>, c, a, b, 32);
}
void multiply_tile(cudaStream_t stream, float* c, const __nv_bfloat16* a, const __nv_bfloat16* b) {
  launch(1, 32, 0, stream, multiply_tile_kernel<__nv_bfloat16>, c, a, b, 32);
}
void multiply_half_tile(cudaStream_t stream, float* c, const __half* a, const __half* b) {
  launch(1, 32, 0, stream, multiply_tile_kernel<__half>, c, a, b, 16);
}

void round_to_half(cudaStream_t stream, __half* out, const float* in, int n) {
  launch(static_cast<unsigned>((n + 31) / 32), 32, 0, stream, round_to_half_kernel, out, in, n);
}
void round_to_bfloat16(cudaStream_t stream, __nv_bfloat16* out, const float* in, int n) {
  launch(static_cast<unsigned>((n + 63) / 64), 32, 0, stream, round_to_bfloat16_kernel, out, in, n);
}

void multiply(cudaStream_t stream, float* c, const float* a, const float* b, int m, int n, int k,
              void* workspace, std::size_t workspace_nbytes) {
  multiply_as(CUDA_R_32F, stream, c, a, b, m, n, k, workspace, workspace_nbytes);
}
void multiply(cudaStream_t stream, __nv_bfloat16* c, const __nv_bfloat16* a, const __nv_bfloat16* b,
              int m, int n, int k, void* workspace, std::size_t workspace_nbytes) {
  multiply_as(CUDA_R_16BF, stream, c, a, b, m, n, k, workspace, workspace_nbytes);
}

}  // namespace samples
