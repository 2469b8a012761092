/// @file
/// Tokens and targets for tests of kernels, and the word that kernels leave for a wrong one.
#pragma once

#include "cuda/kernels.h"
#include "tensor/cuda/index_error.h"

namespace cuda_test {

inline std::vector<std::int32_t> indices(std::int64_t n, std::int64_t size, std::int64_t salt) {
  std::vector<std::int32_t> result;
  for (std::int64_t i = 0; i < n; ++i) {
    result.push_back(static_cast<std::int32_t>((i * i * 7 + salt) % size));
  }
  return result;
}

/// The word of one operation.
class DeviceError {
 public:
  explicit DeviceError(cudaStream_t stream)
      : word_(stream, std::vector<fsdp::cuda::IndexError>{fsdp::cuda::kNoIndexError}) {}
  fsdp::cuda::IndexError* data() { return word_.data; }
  /// Frees it, and checks that it names `index` at `position`, or that nothing is wrong.
  void expect_none() { CHECK(take() == fsdp::cuda::kNoIndexError); }
  void expect(std::int64_t position, std::int32_t index) {
    const fsdp::cuda::IndexError word = take();
    CHECK(fsdp::cuda::position_of(word) == position);
    CHECK(fsdp::cuda::index_of(word) == index);
  }

 private:
  fsdp::cuda::IndexError take() {
    const auto word = word_.read_back().front();
    word_.free();
    return word;
  }
  OnDevice<fsdp::cuda::IndexError> word_;
};

}  // namespace cuda_test
