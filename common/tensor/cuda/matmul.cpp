#include "tensor/cuda/matmul.h"

#include "base/check.h"
#include "base/half_floats.h"
#include "device/cuda/driver_gate.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>

namespace fsdp::cuda {
namespace {

template <class T>
constexpr cudaDataType_t kTypeOf = CUDA_R_32F;
template <>
constexpr cudaDataType_t kTypeOf<BFloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kTypeOf<Float16> = CUDA_R_16F;

void require(cublasStatus_t status, const char* call) {
  FSDP_CHECK(status == CUBLAS_STATUS_SUCCESS, "{} failed on the CUDA device: cuBLAS status {}",
             call, static_cast<int>(status));
}

struct Destroy {
  void operator()(cublasLtHandle_t it) const {
    const std::unique_lock alone(driver_gate());
    try {
      cublasLtDestroy(it);
    } catch (...) {  // only the stand-in throws, and has a failure to report
    }
  }
  void operator()(cublasLtMatmulDesc_t it) const { cublasLtMatmulDescDestroy(it); }
  void operator()(cublasLtMatrixLayout_t it) const { cublasLtMatrixLayoutDestroy(it); }
  void operator()(cublasLtMatmulPreference_t it) const { cublasLtMatmulPreferenceDestroy(it); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

/// A matrix (rows, columns) that lies row by row. cuBLASLt has its transpose, column by column: the
/// same bytes.
Owned<cublasLtMatrixLayout_t> transposed(cudaDataType_t type, std::int64_t rows,
                                         std::int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  require(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), columns),
          "cublasLtMatrixLayoutCreate");
  return Owned<cublasLtMatrixLayout_t>(made);
}

/// What an algorithm is chosen for: type, rows, columns, depth, the transpositions, whether it
/// adds, and the alignment of the addresses.
using Key = std::tuple<cudaDataType_t, std::int64_t, std::int64_t, std::int64_t, bool, bool, bool,
                       std::uint32_t>;

/// outᵀ = op(b)ᵀ · op(a)ᵀ: so b is cuBLASLt's first operand.
struct Choice {
  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> b, a, out;
  cublasLtMatmulAlgo_t algorithm;
};

Owned<cublasLtMatmulDesc_t> product_of(const ProductShape& shape) {
  cublasLtMatmulDesc_t made = nullptr;
  require(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
  Owned<cublasLtMatmulDesc_t> product(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool is_transposed) {
    const cublasOperation_t operation = is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    require(cublasLtMatmulDescSetAttribute(made, attribute, &operation, sizeof operation),
            "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed);
  return product;
}

/// `alignment`: bytes that every address is a multiple of.
Owned<cublasLtMatmulPreference_t> preference_for(std::size_t workspace_nbytes,
                                                 std::uint32_t alignment) {
  cublasLtMatmulPreference_t made = nullptr;
  require(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Owned<cublasLtMatmulPreference_t> preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    require(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_nbytes});
  // The others round partial sums to the output's type, or add them up in the output itself.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  return preference;
}

Choice choose(cublasLtHandle_t handle, cudaDataType_t type, const ProductShape& shape,
              cublasLtMatmulPreference_t preference) {
  const auto [m, n, k, a_transposed, b_transposed, add] = shape;
  Choice choice{product_of(shape),
                b_transposed ? transposed(type, n, k) : transposed(type, k, n),
                a_transposed ? transposed(type, k, m) : transposed(type, m, k),
                transposed(type, m, n),
                {}};
  // The fastest first, and some may not run: that says their state.
  std::array<cublasLtMatmulHeuristicResult_t, 8> results = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, choice.product.get(), choice.b.get(), choice.a.get(), choice.out.get(),
      choice.out.get(), preference, static_cast<int>(results.size()), results.data(), &count);
  const auto end = results.begin() + (status == CUBLAS_STATUS_SUCCESS ? count : 0);
  const auto found = std::find_if(
      results.begin(), end, [](const auto& each) { return each.state == CUBLAS_STATUS_SUCCESS; });
  FSDP_CHECK(found != end,
             "matmul: cuBLASLt has no algorithm for ({}, {}) times ({}, {}) on this device (cuBLAS "
             "status {}); use a device of compute capability 8.0 or later",
             m, k, k, n, static_cast<int>(status));
  choice.algorithm = found->algo;
  return choice;
}

}  // namespace

class Products::Choices {
 public:
  explicit Choices(std::size_t workspace_nbytes) : workspace_nbytes_(workspace_nbytes) {
    cublasLtHandle_t made = nullptr;
    const std::unique_lock alone(driver_gate());
    require(cublasLtCreate(&made), "cublasLtCreate");
    handle_.reset(made);
  }
  cublasLtHandle_t handle() const { return handle_.get(); }
  std::size_t workspace_nbytes() const { return workspace_nbytes_; }
  std::size_t size() const { return by_key_.size(); }
  /// Calls `run` with the choice. The first time it may load a kernel.
  template <class Run>
  void with(cudaDataType_t type, const ProductShape& shape, std::uint32_t alignment, Run run) {
    const Key key{type,        shape.rows,         shape.columns,
                  shape.depth, shape.a_transposed, shape.b_transposed,
                  shape.add,   alignment};
    if (const auto found = by_key_.find(key); found != by_key_.end()) return run(found->second);
    const auto preference = preference_for(workspace_nbytes_, alignment);
    const std::unique_lock alone(driver_gate());
    run(by_key_.emplace(key, choose(handle(), type, shape, preference.get())).first->second);
  }

 private:
  std::size_t workspace_nbytes_;
  Owned<cublasLtHandle_t> handle_;
  std::map<Key, Choice> by_key_;
};

Products::Products(std::size_t workspace_nbytes)
    : choices_(std::make_unique<Choices>(workspace_nbytes)) {}
Products::~Products() = default;

std::size_t Products::workspace_nbytes() const { return choices_->workspace_nbytes(); }
std::size_t Products::num_choices() const { return choices_->size(); }

template <class T>
void Products::matmul(Stream stream, T* out, const T* a, const T* b, const ProductShape& shape,
                      void* workspace) {
  if (shape.rows == 0 || shape.columns == 0) return;
  if (shape.depth == 0) {
    if (shape.add) return;
    const auto nbytes = static_cast<std::size_t>(shape.rows * shape.columns) * sizeof(T);
    const cudaError_t status = cudaMemsetAsync(out, 0, nbytes, stream);
    FSDP_CHECK(status == cudaSuccess, "matmul: clearing {} bytes failed on the CUDA device: {}",
               nbytes, cudaGetErrorString(status));
    return;
  }
  // Where rows are no multiples of 16 bytes, most begin elsewhere whatever the address is. So an
  // address does not decide there, and a weight has the same algorithm wherever it lies.
  const auto rows =
      static_cast<std::size_t>((shape.a_transposed ? shape.rows : shape.depth) |
                               (shape.b_transposed ? shape.depth : shape.columns) | shape.columns) *
      sizeof(T);
  const auto bits = reinterpret_cast<std::uintptr_t>(out) | reinterpret_cast<std::uintptr_t>(a) |
                    reinterpret_cast<std::uintptr_t>(b) | rows;
  const std::uint32_t alignment = bits % 16 == 0 ? 16 : sizeof(T);
  const float alpha = 1, beta = shape.add ? 1.0F : 0.0F;
  choices_->with(kTypeOf<T>, shape, alignment, [&](const Choice& choice) {
    require(cublasLtMatmul(choices_->handle(), choice.product.get(), &alpha, b, choice.b.get(), a,
                           choice.a.get(), &beta, out, choice.out.get(), out, choice.out.get(),
                           &choice.algorithm, workspace, workspace_nbytes(), stream),
            "cublasLtMatmul");
  });
}

template void Products::matmul(Stream, float*, const float*, const float*, const ProductShape&,
                               void*);
template void Products::matmul(Stream, BFloat16*, const BFloat16*, const BFloat16*,
                               const ProductShape&, void*);
template void Products::matmul(Stream, Float16*, const Float16*, const Float16*,
                               const ProductShape&, void*);

}  // namespace fsdp::cuda
