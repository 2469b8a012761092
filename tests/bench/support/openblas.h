/// @file
/// OpenBLAS, which our products are measured against. It is loaded when a benchmark runs, and only
/// if it is installed: nothing else depends on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::bench {

bool openblas_is_installed();

/// One sentence for where it is not.
inline constexpr const char* kWithoutOpenBlas =
    "OpenBLAS is not installed, so only our own products are measured: install libopenblas0-openmp "
    "(`make bench` does so) to compare them with its products.";

/// The families of processors whose kernels OpenBLAS may run here (its OPENBLAS_CORETYPE); "" is
/// its own choice. It takes a processor that it does not know for one without AVX ("Prescott"), and
/// is then about four times slower than it could be. So try them all.
std::vector<std::string> openblas_families();

/// The library, loaded into this process.
class OpenBlas {
 public:
  /// A process loads it once; OPENBLAS_CORETYPE is read when it does.
  /// @throws Error if it cannot be loaded.
  OpenBlas(const std::string& family, int threads);

  /// The family that it chose.
  std::string family() const;

  /// c (m, n) = op(a) · op(b), with op(a) (m, k) and op(b) (k, n) transposed as requested. All
  /// matrices are row-major, without gaps.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, bool transpose_a,
                const float* b, bool transpose_b, float* c) const;

 private:
  // cblas_sgemm: order, two transpositions, three extents, alpha, a, lda, b, ldb, beta, c, ldc.
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  void* library_;
  Sgemm sgemm_;
};

}  // namespace fsdp::bench
