/// @file
/// @ingroup device
/// Work for another CUDA device than the thread's own.
#pragma once

namespace fsdp::cuda {

/// Gives the calling thread its CUDA device back at the end of the scope. What frees something of a
/// device needs it: the thread may be another rank's, which was the last to use it.
class KeepDevice {
 public:
  KeepDevice();
  ~KeepDevice();
  KeepDevice(const KeepDevice&) = delete;
  KeepDevice& operator=(const KeepDevice&) = delete;

 private:
  int device_ = 0;
};

}  // namespace fsdp::cuda
