/// @file
/// @ingroup tensor
/// What the kernels of one rank keep with its CUDA device.
#pragma once

#include "device/context.h"
#include "device/cuda/rank_device.h"
#include "device/storage.h"
#include "tensor/cuda/index_error.h"
#include "tensor/cuda/matmul.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fsdp::cuda {

class CudaKernelState final : public KernelState {
 public:
  /// That of the current Context; made at first use.
  static CudaKernelState& current();

  CudaKernelState();

  /// Where a kernel notes an index outside [0, size). The next wait for the compute stream turns it
  /// into the Error that the CPU throws: "embedding: token 7 at position 3 is outside the
  /// vocabulary [0, 5)", where `operation` is embedding and `noun` is token.
  IndexError* error_of(const std::string& operation, const std::string& noun, std::int64_t size);
  /// One word of scratch, for the operation that asks for it.
  template <class T>
  T* word() {
    static_assert(sizeof(T) <= kWordNbytes);
    return reinterpret_cast<T*>(word_.data());
  }
  Products& products();
  /// Scratch of the device for the kernels of one operation, products() too; made at first use.
  std::span<std::byte> workspace();

  /// Bytes of the device, without the workspace.
  static std::int64_t words_nbytes() {
    return static_cast<std::int64_t>(kGranularity + kMostChecks * sizeof(IndexError));
  }

  void before_wait() override;
  void after_wait() override;

 private:
  static constexpr std::size_t kWordNbytes = 8, kMostChecks = 64;
  struct Check {
    std::string operation, noun;
    std::int64_t size;
    friend bool operator==(const Check&, const Check&) = default;
  };

  Storage word_;
  Storage noted_, read_;  // a word for each check; read_ is pinned memory of the host
  std::vector<Check> checks_;
  bool is_noted_ = false;  // a kernel may have noted something since the last wait
  std::optional<Storage> workspace_;
  std::optional<Products> products_;
};

}  // namespace fsdp::cuda
