/// @file
/// @ingroup comm
/// How processes that MPI has not connected find each other.
///
///     every rank  --- hello: my rank, my port --->  rank 0, at MASTER_ADDR:MASTER_PORT
///     every rank  <-- where each rank listens ----  rank 0
///     every rank  --- two connections ----------->  every lower rank
#pragma once

#include "comm/processes/job.h"
#include "comm/processes/socket.h"

#include <chrono>
#include <vector>

namespace fsdp::processes {

/// The connections of a process, by the rank at their other end. Those to itself are not open.
struct Connections {
  std::vector<Socket> control;
  std::vector<Socket> data;
  Place place;  ///< among the processes of this machine
};

/// Processes of a job may start so far apart.
constexpr std::chrono::seconds kMeetingLimit{300};

/// Connects this process to all others.
/// @throws Error that names the ranks that are missing, or what cannot be reached
Connections meet(const Launch& launch, std::chrono::milliseconds limit = kMeetingLimit);

}  // namespace fsdp::processes
