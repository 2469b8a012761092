/// @file
/// @ingroup comm
/// Ranks as threads of one process: the default backend. No installation, nothing copied but the
/// result itself, and nothing can hang.
#pragma once

#include "comm/process_group.h"
#include "device/context.h"

#include <chrono>
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
  /// How long ranks that cannot go on wait for what an exception says that is still on its way
  /// through another rank (see run_ranks).
  std::chrono::milliseconds patience{5'000};
};

/// Runs `body` once per rank, each on a thread with a Context of its own, and returns when all have
/// ended. If ranks throw, the error of the one that failed first is rethrown here; an Aborted that
/// merely followed from it is not. With more than one rank the message then begins with
/// "rank 1: ", and the type stays: InputError, Error, …, the common ones of std; an exception of
/// any other type is handed on as it is.
///
/// What can go wrong ends at once, on every rank, with the table of hang_report.h in the message:
///   - ranks disagree at a sequence number (operation, dtype, elements, reduce op, root, label)
///   - a rank throws                          Aborted: rank 1: what it threw
///   - every live rank waits and nothing can complete, or a rank needed for it has returned; asking
///     is_done() counts as waiting when a rank that is needed has returned, or after a hundred
///     thousand questions in a row
///   - a rank returns, and a Work of its was neither waited for nor destroyed
///   - a Work is waited for or destroyed by another thread than its rank's
/// A rank that swallows such an error fails again at its next call to any group, or when it
/// returns. The other ranks do not wait for that: they have failed already, at the latest when
/// `patience` has passed, if an exception went through a destructor of a Work and was swallowed.
/// Only an endless loop in `body` itself needs a timeout from outside.
///
/// @throws Error before any rank begins when the system has too few threads: one for each rank and
/// up to as many for communication, besides what `threads_per_rank` asks for.
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body);

/// Shorthand with default options.
void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body);

}  // namespace fsdp
