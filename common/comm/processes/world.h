/// @file
/// @ingroup comm
/// A world of ranks that are the processes of a launcher.
#pragma once

#include "comm/world.h"

#include <functional>
#include <string>

namespace fsdp::processes {

/// run_ranks() in a process that a launcher has started. The first `world_size` processes run
/// `body`, each for its own rank; the others wait for the end. All of them return, or throw the
/// same error.
/// @throws Error if it has started too few processes
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body);

/// in_every_process() in a process that a launcher has started.
void in_every_process(const std::function<void()>& body);

/// The message of the error that all processes have thrown last; "" = none.
const std::string& common_failure();

}  // namespace fsdp::processes
