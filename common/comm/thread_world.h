/// @file
/// @ingroup comm
/// Ranks as threads of one process: the default backend. It needs no installation, copies only the
/// result itself, and cannot hang.
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
  /// How long blocked ranks wait for the message of an exception that is still unwinding another
  /// rank (see run_ranks).
  std::chrono::milliseconds patience{5'000};
};

/// Runs `body` once per rank, each on a thread with its own Context, and returns when all have
/// ended. If ranks throw, the error of the one that failed first is rethrown here, not an Aborted
/// that followed from it. With more than one rank, the message begins with "rank 1: " and the type
/// stays: InputError, Error, …, and the common ones of std. An exception of any other type is
/// rethrown unchanged.
///
/// These failures end every rank at once, with the table of hang_report.h in the message:
///   - ranks disagree at a sequence number (operation, dtype, elements, reduce op, root, label)
///   - a rank throws                          Aborted: rank 1: what it threw
///   - every live rank waits and nothing can complete, or a rank needed for it has returned; a call
///     of is_done() counts as waiting if a needed rank has returned, or after a hundred thousand
///     calls in a row
///   - a rank returns, and one of its Works was neither waited for nor destroyed
///   - a thread other than its rank's waits for a Work or destroys it
/// A rank that swallows such an error fails again at its next call to any group, or when it
/// returns. The other ranks do not wait for that: they have failed already. If the exception that
/// was swallowed went through a Work's destructor, they fail after `patience` at the latest.
/// Only an endless loop in `body` itself needs a timeout from outside.
///
/// @throws Error before any rank begins if the system has too few threads: one per rank and up to
/// as many for communication, besides those of `threads_per_rank`.
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body);

/// Shorthand with default options.
void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body);

}  // namespace fsdp
