/// @file
/// @ingroup comm
/// A world: ranks that run the same function and communicate. They are threads of this process, or,
/// if a launcher has started it, its processes.
#pragma once

#include "comm/device_plane.h"
#include "comm/process_group.h"
#include "device/context.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

/// The place of this process among those that a launcher has started; 0 if ranks are threads.
/// Process 0 prints and writes files; the others do neither.
int process_rank();

/// Runs `body` in every process that a launcher has started, outside of any world; once, if it has
/// started none. If it throws in some of them, all throw what it threw in the first of these, which
/// the message names unless it is process 0.
void in_every_process(const std::function<void()>& body);

/// True if the message is of an error that all processes have thrown alike, the last time that they
/// did something together: then process 0 alone need print it.
bool is_known_to_all_processes(const std::string& message);

/// Wraps a rank's backend in one that records, delays or fails, as tests do.
using Decorator = std::function<std::shared_ptr<Backend>(std::shared_ptr<Backend>)>;

struct RankOptions {
  int world_size = 1;
  int threads_per_rank = 1;
  std::uint64_t seed = 0;
  bool record_trace = false;
  bool has_cpu_host = false;  ///< as in Context::Options
  /// Rank r computes on devices[r % devices.size()], or on the cpu if there are none. Several ranks
  /// may share a CUDA device.
  std::vector<Device> devices{};
  std::size_t segment_nbytes = Context::Options{}.segment_nbytes;      ///< as in Context::Options
  std::size_t workspace_nbytes = Context::Options{}.workspace_nbytes;  ///< as in Context::Options
  DeviceData device_data = DeviceData::canonical;                      ///< on CUDA devices
  Decorator decorate{};  ///< optional; called on each rank's thread
  /// How long blocked ranks wait for the message of an exception that is still unwinding another
  /// rank (see run_ranks).
  std::chrono::milliseconds patience{5'000};
};

/// Runs `body` once per rank, each with its own Context, and returns when all have ended. Each rank
/// has a thread of this process. If a launcher has started this process, its processes are the
/// ranks instead, and `body` runs here for one of them only: what it captures is not shared.
///
/// If ranks throw, the error of the one that failed first is rethrown here, not an Aborted
/// that followed from it. With more than one rank, the message begins with "rank 1: " and the type
/// stays: InputError, Error, …, and the common ones of std. An exception of any other type is
/// rethrown unchanged (other processes than its own get its message).
///
/// These failures end every rank at once, with the table of control_report.h in the message:
///   - ranks disagree at a sequence number (operation, dtype, elements, reduce op, root, label)
///   - a rank throws                          Aborted: rank 1: what it threw
///   - a rank ends its own thread (pthread_exit): as if it threw, but a process ends at once, and
///     its launcher ends the others
///   - every live rank waits and nothing can complete, or a rank needed for it has returned; a call
///     of is_done() counts as waiting if a needed rank has returned, or after a hundred thousand
///     calls in a row
///   - a rank returns, and one of its Works was neither waited for nor destroyed
///   - a thread other than its rank's waits for a Work or destroys it
/// A rank that swallows such an error fails again at its next call to any group, or when it
/// returns. The other ranks do not wait for that: they have failed already. If the exception that
/// was swallowed went through a Work's destructor, they fail after `patience` at the latest.
/// Two things need a timeout from outside: an endless loop in `body` itself, and a lock that a
/// thread holds while it waits for a collective, if another rank needs that lock to get there. But
/// ranks that are processes are ended if one still runs eight seconds after the others have failed.
///
/// @throws Error before any rank begins if there are too few threads or processes, or if processes
///         were to have CUDA devices and DeviceData::canonical
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body);

/// Shorthand with default options.
void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body);

}  // namespace fsdp
