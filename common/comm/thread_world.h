/// @file
/// @ingroup comm
/// A world of ranks that are threads of this process. It needs no installation, copies only the
/// result itself, and cannot hang.
#pragma once

#include "comm/world.h"

#include <functional>

namespace fsdp::threads {

/// run_ranks() with a thread for each rank.
/// @throws Error before any rank begins if the system has too few threads: one per rank and up to
/// as many for communication, besides those of `threads_per_rank`.
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body);

}  // namespace fsdp::threads
