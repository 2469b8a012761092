/// @file
/// @ingroup comm
/// Work for the devices of other ranks, on whatever thread finds the time.
#pragma once

#include "comm/process_group.h"

#include <vector>

namespace fsdp::cuda {

/// Gives the calling thread its CUDA device back at the end of the scope.
class KeepDevice {
 public:
  KeepDevice();
  ~KeepDevice();
  KeepDevice(const KeepDevice&) = delete;
  KeepDevice& operator=(const KeepDevice&) = delete;

 private:
  int device_ = 0;
};

/// The device of the rank that made `call`.
RankDevice& device_of(const Collective& call);

/// Waits until the communication streams of all ranks are empty, after a failure. Throws nothing.
void drain(const std::vector<Collective>& calls) noexcept;

}  // namespace fsdp::cuda
