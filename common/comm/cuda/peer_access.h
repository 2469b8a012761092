/// @file
/// @ingroup comm
/// Kernels of one device that reach the memory of another.
#pragma once

#include "device/accelerator.h"

#include <mutex>
#include <set>
#include <utility>

namespace fsdp::cuda {

class PeerAccess {
 public:
  /// From now on, kernels of `device`, which is active, can reach memory of `peer`.
  /// @throws Error if the machine cannot do that
  void enable(const RankDevice& device, const RankDevice& peer);

 private:
  std::mutex mutex_;
  std::set<std::pair<int, int>> enabled_;
};

}  // namespace fsdp::cuda
