/// @file
/// @ingroup comm
/// Where the ranks of the thread backend meet: which operation runs next, which threads help, and
/// who sleeps until when.
#pragma once

#include "comm/agreement.h"
#include "comm/device_plane.h"
#include "comm/process_group.h"
#include "comm/transfer.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
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

using control::Group;
using control::SplitChoice;

/// An operation whose data moves in chunks. Guarded by the Rendezvous's mutex.
struct ChunkedOperation : control::Operation {
  std::unique_ptr<Transfer> transfer;  // set when its turn has come
  std::int64_t next_chunk = 0;
  std::int64_t running = 0;                       // chunks running now: no buffer may be freed
  std::int64_t finished = 0;                      // chunks done
  std::chrono::steady_clock::time_point ended{};  // when the last one was; set before `done`
};

/// One world of ranks that are threads.
///
/// A collective starts when the last of its ranks has called it, and the calls match (Agreement).
/// Then the copying or adding is cut into chunks (Transfer) that any thread may run:
///
///   - a rank that waits anyway runs chunks, so no other thread need wake up for them;
///   - a few communication threads run chunks while all ranks compute;
///   - the rank that calls a small collective last runs it at once.
///
/// So no thread blocks in the middle of a collective, whatever groups exist and however many ranks
/// share a core.
///
/// When the world stops, chunks not begun are dropped, and running ones end first (no buffer may be
/// freed under a reader). Every waiting or later call throws Aborted with the same message.
class Rendezvous : private control::Agreement::Listener {
 public:
  /// @throws Error when there are too few threads, or `device_data` needs what the program lacks
  Rendezvous(int world_size, std::chrono::milliseconds patience,
             DeviceData device_data = DeviceData::canonical);
  ~Rendezvous() override;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// The group of all ranks.
  const std::shared_ptr<Group>& world() const { return agreement_.world(); }

  // ---- for backends; `rank` is a world rank, and its thread calls

  /// Enters a call. Never blocks for other ranks. @throws Aborted; Error from another thread
  std::shared_ptr<ChunkedOperation> call(const std::shared_ptr<Group>& group, int member,
                                         const Collective& call, SplitChoice choice = {});
  /// Blocks until `operation` is done, or stopped with no thread running its chunks. A call from
  /// another thread stops the world: it must not return earlier, and a deadlock of a thread that is
  /// no rank's cannot be detected. @throws Aborted
  void wait(int rank, const ChunkedOperation& operation);
  /// True if wait() would not block, or only until the reason is known.
  /// @throws Error from another thread
  bool is_done(int rank, const ChunkedOperation& operation);
  /// `rank` no longer holds a handle of `operation`. wait() does this as well.
  void let_go(int rank, const ChunkedOperation& operation);
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

  /// The thread of one rank.
  struct RankThread {
    std::thread::id id;  // the one thread that may call for this rank
    // Called; their Works neither waited for nor destroyed.
    std::vector<const ChunkedOperation*> held;
    std::condition_variable wake;
  };

  // What the agreement tells.
  std::shared_ptr<control::Operation> make_operation() override;
  void on_agreed(const std::shared_ptr<control::Operation>& operation) override;
  void on_stop() override;
  void on_reason() override;

  // Moving on.
  void advance(Group& group);
  void finish(ChunkedOperation& operation);
  void enqueue(const std::shared_ptr<ChunkedOperation>& operation);
  void wake_all();
  void wake_helpers(std::int64_t helpers);
  void wake_waiters(const ChunkedOperation& operation);
  bool has_small_work() const;
  void work(Lock& lock);
  void run_chunk(Lock& lock);
  void communication_thread(bool checks_devices);
  void check_devices(Lock& lock);
  void end_communication_threads();

  // Stopping.
  void sleep(Lock& lock, RankThread& self);
  void wait_as_stranger(Lock& lock, int rank, const ChunkedOperation& operation);
  void check_thread(int rank, std::string_view what) const;
  std::string stranger() const;
  [[noreturn]] void throw_aborted(Lock& lock, int rank);
  RankThread& thread_of(int rank) { return rank_threads_[static_cast<std::size_t>(rank)]; }
  bool is_on_thread_of(int rank) const;

  mutable std::mutex mutex_;  // guards everything below, and every Group and operation
  control::Agreement agreement_;
  std::vector<RankThread> rank_threads_;
  std::unique_ptr<DevicePlane> devices_;  // null: no collective has operands there
  // With chunks not yet taken; small ones first.
  std::deque<std::shared_ptr<ChunkedOperation>> active_;
  Failure failure_;  // of the rank that failed first, when a rank's error was the reason

  bool closing_ = false;
  std::condition_variable work_or_close_;
  std::vector<std::thread> threads_;
};

/// The backend of member `member` of `group`. Used from that rank's thread only.
std::shared_ptr<Backend> make_backend(std::shared_ptr<Rendezvous> rendezvous,
                                      std::shared_ptr<Group> group, int member);

}  // namespace fsdp::threads
