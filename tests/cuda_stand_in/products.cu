#include "cuda_stand_in/products.h"

#include "cuda_stand_in/device_checks.h"
#include "device/cuda/warp_instructions.h"

#include <cublasLt.h>

#include <memory>
#include <type_traits>

namespace {

using namespace fsdp::cuda;

// Of b, too, every row is 16 elements. A product of ldmatrix's four tiles of b is 16 x 8.
template <class T>
__global__ void multiply_tile_kernel(float* c, const T* a, const T* b, bool transposed,
                                     int threads) {
  __shared__ __align__(16) unsigned short rows[2][256];  // the bits of each T
  const int lane = static_cast<int>(threadIdx.x), row = lane / 4, column = lane % 4 * 2;
  cp_async<16>(shared_address(rows[0] + 8 * lane), a + 8 * lane, true);
  cp_async<16>(shared_address(rows[1] + 8 * lane), b + 8 * lane, true);
  cp_async_wait();
  __syncwarp();
  if (lane >= threads) return;
  const int first = lane % 16 * 16 + lane / 16 * 8,
            other = (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8;
  unsigned left[4], right[4];
  ldmatrix_x4(left, shared_address(rows[0] + first));
  if (transposed) {
    ldmatrix_x4(right, shared_address(rows[1] + other));
  } else {
    ldmatrix_x4_trans(right, shared_address(rows[1] + first));
  }
  for (int j = 0; j < 2; ++j) {
    float sums[4];
    const auto place = [&](int i) { return (row + i / 2 * 8) * 16 + 8 * j + column + i % 2; };
    for (int i = 0; i < 4; ++i) sums[i] = c[place(i)];
    mma_m16n8k16<T>(sums, left, right[2 * j], right[2 * j + 1]);
    for (int i = 0; i < 4; ++i) c[place(i)] = sums[i];
  }
}

__global__ void copy_rows_kernel(float* out, const float* in, int rows, bool waits) {
  __shared__ __align__(16) float tile[32 * 4];
  const int row = static_cast<int>(threadIdx.x);
  cp_async<16>(shared_address(tile + 4 * row), in + 4 * row, row < rows);
  if (waits) cp_async_wait();
  __syncthreads();
  for (int i = 0; i < 4; ++i) out[4 * row + i] = tile[4 * (31 - row) + i];
  __syncthreads();
  if (!waits) cp_async_wait();
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
  cublasLtMatmulHeuristicResult_t found[4] = {};
  int count = 0;
  require(cublasLtMatmulAlgoGetHeuristic(handle.get(), product.get(), left.get(), right.get(),
                                         result.get(), result.get(), preference.get(), 4, found,
                                         &count));
  int chosen = 0;  // the first that can run
  while (chosen + 1 < count && found[chosen].state != CUBLAS_STATUS_SUCCESS) ++chosen;
  const float alpha = 1, beta = 0;
  require(cublasLtMatmul(handle.get(), product.get(), &alpha, b, left.get(), a, right.get(), &beta,
                         c, result.get(), c, result.get(), &found[chosen].algo, workspace,
                         workspace_nbytes, stream));
}

}  // namespace

namespace samples {

template <class T>
void multiply_tile(cudaStream_t stream, float* c, const T* a, const T* b, bool transposed,
                   int threads) {
  launch(1, 32, 0, stream, multiply_tile_kernel<T>, c, a, b, transposed, threads);
}
template void multiply_tile(cudaStream_t, float*, const __half*, const __half*, bool, int);
template void multiply_tile(cudaStream_t, float*, const __nv_bfloat16*, const __nv_bfloat16*, bool,
                            int);

void copy_rows(cudaStream_t stream, float* out, const float* in, int rows, bool waits) {
  launch(1, 32, 0, stream, copy_rows_kernel, out, in, rows, waits);
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
