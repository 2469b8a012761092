/// @file
/// @ingroup comm
/// Collectives as calls of NCCL.
#pragma once

#include "comm/process_group.h"

#include <nccl.h>

#include <string>

namespace fsdp::cuda {

/// Gives a rank's part of a collective to the communication stream of its device.
/// @throws Error if NCCL has no values of that type
ncclResult_t start(const Collective& call, ncclComm_t communicator);

/// A message: what has failed, NCCL's reason, and how to see more of it.
std::string message_of(const std::string& what, ncclResult_t answer);

/// The same for a collective that has failed on `device`.
std::string message_of_failure(RankDevice& device, ncclResult_t answer);

}  // namespace fsdp::cuda
