/// @file
/// The state of the stand-in: streams, events, and the one lock that all calls take. Internal.
#pragma once

#include "support/cuda_on_host/clock.h"
#include "support/cuda_on_host/include/cuda_runtime.h"
#include "support/cuda_on_host/memory.h"
#include "support/cuda_on_host/misuse.h"
#include "support/cuda_on_host/order.h"
#include "support/cuda_on_host/session.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cuda_on_host {

/// One cudaEventRecord. A wait refers to this, and not to the event, which may be recorded again.
struct Record {
  bool done = false;
  Clock clock;
  CUstream_st* stream = nullptr;
};

/// An entry of a stream's queue.
struct Work {
  std::string what;
  std::function<void()> run;
  /// Whether it may run now, given that it is the first of its stream. Null: always.
  std::function<bool()> ready;
  /// Streams that must go on before it may run.
  std::function<std::vector<CUstream_st*>()> blockers;
};

}  // namespace cuda_on_host

struct CUstream_st {
  int number;
  int device;
  unsigned flags;
  int priority;
  bool destroyed = false;
  std::size_t component;
  cuda_on_host::Clock clock;  ///< of what comes after everything that was issued so far
  std::deque<cuda_on_host::Work> queue;
  std::int64_t issued = 0, finished = 0;

  std::string name() const;
};

struct CUevent_st {
  int number;
  int device;
  unsigned flags;
  bool destroyed = false;
  std::shared_ptr<cuda_on_host::Record> last;

  std::string name() const;
};

namespace cuda_on_host {

class Machine {
 public:
  Plan plan;
  Random random;
  Memory memory;
  std::vector<Operation> operations;
  Clock host;
  std::int64_t waits = 0;
  Traffic traffic;
  std::map<std::string, std::int64_t> launches;
  std::int64_t attributes_set = 0;
  std::set<int> opened_devices;
  std::string failure;  ///< the first Misuse
  std::set<std::pair<int, int>>
      peers;  ///< {device, peer}: its kernels may touch memory of the peer
  std::set<std::pair<int, int>> pool_peers;  ///< the same for memory of the peer's pool
  /// Where cudaMallocAsync takes memory from.
  struct Pool {
    std::uint64_t unused = 0;  ///< bytes that were freed
    std::uint64_t keeps = 0;   ///< bytes that no synchronization gives back to the driver
  };
  std::map<int, Pool> pools;  ///< by device

  /// Whether kernels are loaded when CUDA starts: CUDA_MODULE_LOADING at the first call.
  std::optional<bool> loads_kernels_first;
  std::string half_launched;  ///< the collective that some devices have been given, and not all
  std::function<void(std::string_view call)> driver_watch;

  /// For a call that may wait for any device: it fails in the middle of such a launch.
  void check_driver(std::string_view call) const;
  /// At the end of a synchronization: pools give back what they need not keep; that is such a call.
  void release_pools(std::string_view synchronization);
  /// In the middle of a launch: other threads may call now.
  void let_others_in(std::unique_lock<std::mutex>& lock, const std::string& launch);

  void reset(const Plan& new_plan);
  CUstream_st* new_stream(unsigned flags, int priority, int device);
  CUevent_st* new_event(unsigned flags, int device);
  /// `stream`, after a check that it can be used; else a Misuse that names `call`.
  CUstream_st& check(cudaStream_t stream, const char* call);
  CUevent_st& check(cudaEvent_t event, const char* call);

  /// An operation that this stream does after all before, or (null) that the host does now.
  std::uint32_t add_operation(std::string what, CUstream_st* stream);
  /// Puts work at the end of a stream, and runs what the mode asks for.
  void issue(CUstream_st& stream, Work work);
  /// Runs work until done() holds. `stream` is what the host waits for, and `what` a description.
  void wait_until(const std::function<bool()>& done, const std::vector<CUstream_st*>& streams,
                  const std::string& what);
  /// Waits for other threads of this process, and runs nothing.
  void wait_for_ranks(const std::function<bool()>& done);
  void wait_for(CUstream_st& stream, const std::string& what);
  /// Runs at most one piece of work that these streams need. False if none of it can run.
  bool advance(const std::vector<CUstream_st*>& streams);
  const std::vector<std::unique_ptr<CUstream_st>>& streams() const { return streams_; }

  /// A thread that takes part in collectives: while one of them goes on, a wait is no deadlock.
  void join_thread();
  void leave_thread(std::thread::id id);  // the caller holds the lock
  /// Something happened that a waiting thread may have waited for.
  void notify();
  std::mutex mutex;

 private:
  bool advance(CUstream_st& stream, std::set<CUstream_st*>& visited);
  void run_first(CUstream_st& stream);
  bool is_ready(CUstream_st& stream);
  void run_as_planned();
  void sleep(const std::string& what);

  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::size_t components_ = 1;
  std::condition_variable_any changed_;
  std::uint64_t generation_ = 0;
  std::set<std::thread::id> threads_;
  std::map<std::thread::id, std::pair<std::uint64_t, std::string>> stuck_;
};

Machine& machine();

/// Takes the lock for one API call; throws the first Misuse again if there was one.
class Call {
 public:
  Call();
  Machine* operator->() const { return &machine(); }
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// The device of the calling thread.
int current_device();
/// Keeps `error` for cudaGetLastError, and returns it.
cudaError_t report(cudaError_t error);
/// Drops the communicators of an earlier session.
void forget_communicators();
/// True if a communicator has ranks in other processes: what waits for one of them is no deadlock.
bool other_processes_go_on();
/// For the message of a deadlock; "" = none.
std::string text_of_lost_processes();
/// After a Misuse: the ranks of other processes get an error, and do not wait for this one.
void leave_other_processes();
/// Fails if a communicator was neither destroyed nor aborted.
void check_communicators();
/// touch() for an operation that is no kernel; fails if something is wrong with the access.
void touch_or_fail(std::uint32_t operation, const void* begin, std::size_t nbytes, bool write);

}  // namespace cuda_on_host
