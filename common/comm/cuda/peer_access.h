/// @file
/// @ingroup comm
/// Kernels of one device that reach the memory of another.
#pragma once

#include "device/accelerator.h"

#include <map>
#include <mutex>
#include <utility>

namespace fsdp::cuda {

class PeerAccess {
 public:
  /// From now on, kernels of `device`, which is active, can reach memory of `peer`, and copies
  /// between them take the direct way. @returns false if the machine cannot do that: many machines
  /// have no way at all, and those without NVSwitch at most 8 peers for each device
  bool try_enable(const RankDevice& device, const RankDevice& peer);
  /// The same. @throws Error if the machine cannot do that
  void enable(const RankDevice& device, const RankDevice& peer);

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, bool> known_;  // whether the first can reach the second
};

}  // namespace fsdp::cuda
