#include "support/cuda_on_host/cublaslt_matrix.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t kWorkspace = 1024;

/// What the algorithm may rely on, and what it was promised.
constexpr int kCannotRun = 5;  // of an algorithm's data

void check_alignment(const std::string& what, const cublasLtMatmulAlgo_t& algorithm,
                     const void* const (&matrices)[4]) {
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t needed = algorithm.data[1 + i];
    if (reinterpret_cast<Address>(matrices[i]) % needed != 0) {
      fail("{} was given a matrix {} at {}, but its algorithm was chosen for multiples of {} bytes",
           what, "ABCD"[i], matrices[i], needed);
    }
  }
}

template <class Object, class Field>
cublasStatus_t set_field(Object& object, Field Object::*field, const void* value,
                         std::size_t nbytes) {
  if (nbytes != sizeof(Field)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&(object.*field), value, nbytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// Whether shapes, types and options fit together.
cublasStatus_t fits(const Product& product, const Layout& a, const Layout& b, const Layout& c,
                    const Layout& d) {
  const bool across_a = product.transpose_a != CUBLAS_OP_N;
  const bool across_b = product.transpose_b != CUBLAS_OP_N;
  const bool shapes = (across_a ? a.columns : a.rows) == d.rows &&
                      (across_b ? b.rows : b.columns) == d.columns &&
                      (across_a ? a.rows : a.columns) == (across_b ? b.columns : b.rows) &&
                      c.rows == d.rows && c.columns == d.columns;
  const bool batches = a.batch_count == d.batch_count && b.batch_count == d.batch_count &&
                       c.batch_count == d.batch_count;
  if (!shapes || !batches) return CUBLAS_STATUS_INVALID_VALUE;
  const bool in_double = product.compute == CUBLAS_COMPUTE_64F;
  const bool types = a.type == b.type && c.type == d.type &&
                     (d.type == a.type || (d.type == CUDA_R_32F && nbytes_of(a.type) == 2)) &&
                     in_double == (a.type == CUDA_R_64F) &&
                     product.scale == (in_double ? CUDA_R_64F : CUDA_R_32F);
  return types && product.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace
}  // namespace cuda_on_host

using namespace cuda_on_host;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Call call;
  call->check_driver("cublasLtCreate");
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  const std::lock_guard lock(machine().mutex);
  if (machine().failure.empty()) machine().check_driver("cublasLtDestroy");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *product = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t nbytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set_field(*product, &Product::transpose_a, value, nbytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set_field(*product, &Product::transpose_b, value, nbytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set_field(*product, &Product::epilogue, value, nbytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  *layout = new Layout{type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t nbytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set_field(*layout, &Layout::order, value, nbytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set_field(*layout, &Layout::batch_count, value, nbytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set_field(*layout, &Layout::batch_stride, value, nbytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t nbytes) {
  using Preference = cublasLtMatmulPreferenceOpaque_t;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set_field(*preference, &Preference::workspace_nbytes, value, nbytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set_field(*preference, &Preference::reductions, value, nbytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      if (nbytes != sizeof(std::uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
      std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                  value, nbytes);
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  *returned = 0;
  const cublasStatus_t status = fits(*product, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *returned = std::min(requested, 2);
  for (int i = 0; i < *returned; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[i];
    result = {};
    result.state = i == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = preference->workspace_nbytes >= kWorkspace ? kWorkspace : 0;
    result.algo.data[0] = result.workspaceSize;
    std::copy(preference->alignment, preference->alignment + 4, result.algo.data + 1);
    result.algo.data[kCannotRun] = i == 0 ? 1 : 0;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t cublas, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_nbytes, cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cublasLtMatmul");
  const cublasStatus_t status = fits(*product, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::size_t needed = algo != nullptr ? algo->data[0] : 0;
  if (needed > workspace_nbytes) return CUBLAS_STATUS_INVALID_VALUE;
  const std::string what = fmt::format("cublasLtMatmul of {}x{} on {}", d_layout->rows,
                                       d_layout->columns, stream.name());
  for (const void* pointer : {a, b, static_cast<const void*>(d)}) {
    if (!call->memory.in_device_range(reinterpret_cast<Address>(pointer))) {
      fail("{} was given a matrix that is no device memory", what);
    }
  }
  if (algo != nullptr && algo->data[kCannotRun] != 0) {
    fail("{} was given an algorithm that cannot run: its `state` said so", what);
  }
  if (algo != nullptr) check_alignment(what, *algo, {a, b, c, d});
  const std::string shape =
      fmt::format("{} {}x{} of {}x{} {} and {}x{} {}", static_cast<int>(d_layout->type),
                  d_layout->rows, d_layout->columns, a_layout->rows, a_layout->columns,
                  product->transpose_a, b_layout->rows, b_layout->columns, product->transpose_b);
  if (cublas->products.insert(shape).second) call->check_driver("cublasLtMatmul");
  double factors[2];  // read now: the caller's variables may be gone when the stream runs
  for (int i = 0; i < 2; ++i) {
    const void* from = i == 0 ? alpha : beta;
    factors[i] = product->scale == CUDA_R_64F
                     ? *static_cast<const double*>(from)
                     : static_cast<double>(*static_cast<const float*>(from));
  }
  ++call->launches["cublasLtMatmul"];
  const std::uint32_t operation = call->add_operation(what, &stream);
  const auto run = [=, product = *product, a_layout = *a_layout, b_layout = *b_layout,
                    c_layout = *c_layout, d_layout = *d_layout, x = factors[0], y = factors[1]] {
    if (needed > 0) {
      touch_or_fail(operation, workspace, needed, true);
      std::memset(workspace, 0xFF, needed);
    }
    for (int i = 0; i < d_layout.batch_count; ++i) {
      const auto matrix = [i](const Layout& layout, const void* begin) {
        const auto offset =
            i * layout.batch_stride * static_cast<std::int64_t>(nbytes_of(layout.type));
        return Matrix{layout, static_cast<char*>(const_cast<void*>(begin)) + offset};
      };
      const Matrix left = matrix(a_layout, a), right = matrix(b_layout, b);
      const Matrix added = matrix(c_layout, c), result = matrix(d_layout, d);
      left.touch_all(operation, false);
      right.touch_all(operation, false);
      if (y != 0) added.touch_all(operation, false);
      result.touch_all(operation, true);
      if (product.compute == CUBLAS_COMPUTE_64F) {
        multiply<double>(product, left, right, added, result, x, y);
      } else {
        multiply<float>(product, left, right, added, result, static_cast<float>(x),
                        static_cast<float>(y));
      }
    }
  };
  call->issue(stream, {what, run, nullptr, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}
