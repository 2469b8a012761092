/// @file
/// @ingroup launch
/// The processes of a job on one machine, from their start until the last has ended.
#pragma once

#include "comm/processes/socket.h"

#include <string>
#include <vector>

namespace fsdp::launch {

struct Plan {
  int ranks = 1;     ///< on this machine
  int machines = 1;  ///< with as many ranks each
  int machine = 0;   ///< this one's number
  /// Where the processes meet, at machine 0. On one machine: a port of the system's choice.
  processes::Address meeting{"127.0.0.1", 0};
  std::vector<std::string> command;  ///< a program and its arguments
};

/// Starts the command once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR and MASTER_PORT, and waits for all. Rank 0 of machine 0 has the standard input.
///
/// If one fails, the others have some seconds to end by themselves, and are ended then. SIGINT,
/// SIGTERM and SIGHUP are passed on to all.
/// @returns the exit code of the first that failed, 128 + its signal if that ended it, or 0
/// @throws Error if a process cannot be started
int run(const Plan& plan);

}  // namespace fsdp::launch
