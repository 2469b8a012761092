/// @file
/// @ingroup comm
/// NCCL's communicators of one group. All its ranks are threads of this process.
#pragma once

#include "comm/process_group.h"

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::cuda {

/// One communicator for each rank of a group. One thread at a time may call, whichever it is.
///
/// A collective starts on all ranks at once, between ncclGroupStart and ncclGroupEnd, when all of
/// them have called it. So a rank that is missing or calls something else is found before NCCL is
/// called, and NCCL reports only faults of the machine.
class Communicators {
 public:
  /// For the ranks that made `calls`, by group rank; their devices are kept.
  /// @throws Error if two of them share a device, or CUDA loads kernels at their first launch
  explicit Communicators(const std::vector<Collective>& calls);
  /// Waits for the collectives that were started.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Starts a collective on the communication stream of every rank.
  /// @throws Error if it could not: some ranks may have begun, and wait for the others
  void start(const std::vector<Collective>& calls);
  /// @throws Error if NCCL reports that a collective has failed
  void check() const;
  /// Ends all that was started. After it nothing can be.
  void give_up();

 private:
  std::vector<std::shared_ptr<RankDevice>> devices_;
  std::vector<ncclComm_t> communicators_;
  bool have_ended_ = false;
};

}  // namespace fsdp::cuda
