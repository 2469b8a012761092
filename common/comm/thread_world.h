/// @file
/// @ingroup comm
/// Ranks as threads of one process: the default backend. No installation, nothing copied but the
/// result itself, and nothing can hang.
#pragma once

#include "comm/process_group.h"
#include "device/context.h"

#include <functional>
#include <memory>
#include <string>

namespace fsdp {

/// Wraps a rank's backend, e.g. in a recorder or a throttled link.
using Decorator = std::function<std::shared_ptr<Backend>(std::shared_ptr<Backend>)>;

struct RankOptions {
  int world_size = 1;
  int threads_per_rank = 1;
  std::uint64_t seed = 0;
  bool record_trace = false;
  Decorator decorate{};  ///< optional; called on each rank's thread
};

/// Runs `body` once per rank, each on a thread with a Context of its own, and returns when all have
/// ended. If ranks throw, the error of the one that failed first is rethrown here; an Aborted that
/// merely followed from it is not.
///
/// What can go wrong ends at once, on every rank, with the table of hang_report.h in the message:
///   - ranks disagree at a sequence number (operation, dtype, elements, reduce op, root, label)
///   - a rank throws                          Aborted: rank 1: what it threw
///   - every live rank waits and nothing can complete, or a rank needed for it has returned
/// Only an endless loop in `body` itself needs a timeout from outside.
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body);

/// Shorthand with default options.
void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body);

}  // namespace fsdp
