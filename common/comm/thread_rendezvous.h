/// @file
/// @ingroup comm
/// The control plane of the thread backend: which calls have arrived, which operation runs next,
/// which threads help, and when the world stops.
#pragma once

#include "comm/thread_group.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fsdp::threads {

/// One world of ranks that are threads.
///
/// A collective starts when the last of its ranks has called it. Then the calls are compared. If
/// they match, the copying or adding is cut into chunks (Transfer) that any thread may run:
///
///   - a rank that waits anyway runs chunks, so no other thread need wake up for them;
///   - a few communication threads run chunks while all ranks compute;
///   - the rank that calls a small collective last runs it at once.
///
/// So no thread blocks in the middle of a collective, whatever groups exist and however many ranks
/// share a core. A rank can only wait for calls that other ranks have yet to make. This makes a
/// hang visible: it is a chain of ranks in the wait-for graph (thread_report.h). The chain can
/// appear at three moments only, when a rank begins to wait, returns, or throws, and is looked for
/// then. A rank that polls also counts as waiting: if a rank it needs has ended, or after a hundred
/// thousand calls of is_done() in a row.
///
/// After a failure the world stops, for good and in all groups. Chunks not begun are dropped, and
/// running ones end first (no buffer may be freed under a reader). Every waiting or later call
/// throws Aborted with the same message.
///
/// One message needs a wait. Suppose an exception unwinds a rank (the *culprit*), which would then
/// wait forever in the destructor of a Work. The reason is that exception, and its message is known
/// only when the culprit's body has ended. The others sleep until then, but at most for `patience`:
/// the culprit may swallow the exception and compute for long. A culprit that uses any group again
/// has swallowed it. Then, and after `patience`, the reason is the chain of ranks that was found.
class Rendezvous {
 public:
  /// @throws Error when there are too few threads
  explicit Rendezvous(int world_size, std::chrono::milliseconds patience);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// The group of all ranks.
  const std::shared_ptr<Group>& world() const { return groups_.front(); }

  // ---- for backends; `rank` is a world rank, and its thread calls

  /// Enters a call. Never blocks for other ranks. @throws Aborted; Error from another thread
  std::shared_ptr<Operation> call(const std::shared_ptr<Group>& group, int member,
                                  const Collective& call, SplitChoice choice = {});
  /// Blocks until `operation` is done, or stopped with no thread running its chunks. A call from
  /// another thread stops the world: it must not return earlier, and a deadlock of a thread that is
  /// no rank's cannot be detected. @throws Aborted
  void wait(int rank, const Operation& operation);
  /// True if wait() would not block, or only until the reason is known.
  /// @throws Error from another thread
  bool is_done(int rank, const Operation& operation);
  /// `rank` no longer holds a handle of `operation`. wait() does this as well.
  void let_go(int rank, const Operation& operation);
  void abort(int rank, const std::string& reason);

  // ---- for run_ranks()

  void on_start(int rank);  ///< on the thread that will call for `rank`
  void on_return(int rank);
  void on_throw(int rank, const std::exception_ptr& error);
  /// After all ranks have ended: what stopped this world (a rank's own error, or Aborted), or null.
  struct Failure {
    std::exception_ptr error;
    int rank = -1;  ///< that threw it; -1 = none
  };
  Failure failure() const;
  /// Ends the communication threads; later calls throw Aborted.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Moving on.
  void advance(Group& group);
  void finish(Operation& operation);
  void enqueue(const std::shared_ptr<Operation>& operation);
  void wake_helpers(std::int64_t helpers);
  void wake_waiters(const Operation& operation);
  bool has_small_work() const;
  void work(Lock& lock);
  void run_chunk(Lock& lock);
  void communication_thread();
  void end_communication_threads();

  // Stopping.
  void note_poll(int rank, const Operation& operation);
  void detect_deadlock(int from);
  void stop(const std::string& reason);
  void stop_for(const std::vector<int>& involved, const std::string& reason);
  void stop_and_ask(int culprit, const std::string& reason);
  void settle(const std::string& reason);
  void settle_if_swallowed(int rank);
  void sleep(Lock& lock, RankState& self);
  void wait_as_stranger(Lock& lock, int rank, const Operation& operation);
  void check_thread(int rank, std::string_view what) const;
  std::string stranger() const;
  [[noreturn]] void throw_aborted(Lock& lock, int rank);
  std::string tables() const;
  const RankState& state(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  mutable std::mutex mutex_;  // guards everything below, and every Group and Operation
  std::vector<RankState> ranks_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::deque<std::shared_ptr<Operation>> active_;  // with chunks not yet taken; small ones first

  bool any_returned_ = false;
  bool stopped_ = false;
  std::optional<std::string> reason_;  // may be set after the stop: see stop_and_ask()
  int culprit_ = -1;
  std::string provisional_reason_;
  std::chrono::steady_clock::time_point end_of_patience_{};
  Failure failure_;  // of the rank that failed first, when a rank's error was the reason

  const std::chrono::milliseconds patience_;
  bool closing_ = false;
  std::condition_variable work_or_close_;
  std::vector<std::thread> threads_;
};

}  // namespace fsdp::threads
