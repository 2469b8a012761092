/// @file
/// @ingroup tensor
/// Copies between a device and the memory of its host, which go on while the device computes.
#pragma once

#include "base/trace.h"
#include "device/accelerator.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp {

/// A copy under way. Like a Work, but of one rank. It leases the storages of `in` and `out`. If it
/// is destroyed before wait(), both must keep their bytes, unchanged, until a collective has ended
/// that uses `out`.
class [[nodiscard]] HostCopy {
 public:
  HostCopy() = default;  ///< Already finished.
  /// Makes the result usable by what the caller does next, and ends the leases. Idempotent. The
  /// trace records it. For a CUDA device, its compute stream waits; the host waits only if `out` is
  /// in its memory.
  void wait();

 private:
  friend HostCopy start_host_copy(const Tensor& out, const Tensor& in, const Label& label);
  void start_on_cuda(const Tensor& out, const Tensor& in);
  void finish_on_cuda();

  bool is_pending_ = false;
  std::unique_ptr<StreamEvent> copied_;  // on CUDA
  Tensor out_, staged_;                  // on CUDA, if the dtypes differ: the bytes as they travel
  std::int64_t end_ = 0;                 // on the virtual clock
  std::vector<Storage::Lease> leases_;
  Event waited_{};
};

/// Starts to copy `in` to `out`, one on a device and the other in the memory of its host, after the
/// copies started before. Each element is rounded once if the dtypes differ; what crosses the bus
/// has the dtype of `in`. A collective on `out` begins when the copy has ended; whatever else uses
/// it must come after wait(). The trace records `issue copy_to_device` or `issue copy_to_host`.
/// With a CUDA device both tensors are contiguous, and wait() rounds.
/// @throws Error unless shapes are equal, and one tensor is in host memory.
HostCopy start_host_copy(const Tensor& out, const Tensor& in, const Label& label);

/// The same, for a collective on `out`, which begins when the copy has ended: nothing waits for it
/// here. Nothing but that collective may use `out` before it has ended.
void copy_for_collective(const Tensor& out, const Tensor& in, const Label& label);

namespace ops {
/// The kernel of ops::copy() on the CPU, without its checks.
void copy_elements(const Tensor& out, const Tensor& in);
}  // namespace ops

}  // namespace fsdp
