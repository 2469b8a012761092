/// @file
/// @ingroup comm
/// A rank's communication: its calls go out, agreements come in, data moves.
#pragma once

#include "comm/processes/coordinator.h"
#include "comm/processes/device_collectives.h"
#include "comm/processes/job.h"
#include "comm/processes/liveness.h"
#include "comm/processes/message.h"
#include "comm/processes/transfer.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp::processes {

/// A group as one of its ranks knows it.
struct Membership {
  int number = 0;            ///< the coordinator's
  std::vector<int> members;  ///< ranks of the job, by group rank
  int rank = 0;              ///< this process's group rank
  std::int64_t called = 0;   ///< collectives that this rank has called; its thread's
};

/// One collective that this rank has called.
struct OwnCall {
  std::shared_ptr<Membership> group;
  Collective call;
  control::SplitChoice choice{};
  bool is_checked = true;              ///< agreed on by all ranks before its data moves
  std::shared_ptr<Membership> part{};  ///< of a split, when done: the new group
  bool agreed = false;                 ///< guarded by the engine
  std::chrono::steady_clock::time_point called{};
  std::chrono::steady_clock::time_point ended{};  // set before `done`
  /// What the next use of the operands must wait for, on a device; else null. Set before `done`.
  std::unique_ptr<StreamEvent> ended_on_device{};
  bool failed = false;  ///< the devices have; set before `done`
  std::atomic<bool> done = false;
};

/// False if FSDP_MPI_UNCHECKED=1 is in the environment. Then the data of a collective move as soon
/// as a rank has called it, and no rank tells the coordinator. That saves a round trip, and loses
/// what it is for. Ranks that call different collectives, or in another order, get wrong values or
/// wait forever, and a rank that ends early is not noticed. Splits and barriers are still agreed
/// on. If a rank throws, the job is ended.
/// @throws InputError if it is neither 0 nor 1
bool checks_calls();

/// The engine of this process in one world.
///
/// A rank that waits drives the engine itself, since its processor has nothing else to do. While it
/// computes, a thread does: it looks for messages again and again, with growing pauses.
///
/// Some failures leave no way to tell the others: a process that has ended or fallen silent, memory
/// that ran out in the middle of a message, a rank that computes on for eight seconds after the
/// world has stopped. Then the whole job is ended at once, after a message on stderr.
class Engine {
 public:
  Engine(Job& job, int world_size, std::chrono::milliseconds patience);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The group of all ranks; null in a process that is no rank of this world.
  const std::shared_ptr<Membership>& world() const { return world_; }

  // ---- on the rank's thread

  /// Enters a call. @throws Aborted
  void call(const std::shared_ptr<OwnCall>& operation);
  /// Blocks until `operation` is done, or will never be. On another thread it stops the world.
  /// @throws Aborted
  void wait(OwnCall& operation);
  /// @throws Error on another thread
  bool is_done(OwnCall& operation);
  /// The operation of a Work that nobody has waited for, for a message; "" = none.
  std::string leaked() const;
  /// Tells how this rank has ended, and waits until all have. From then on every call throws
  /// Aborted. @returns how the world has ended
  Message finish(const Message& ended);

  // ---- on any thread

  void abort(const std::string& reason);

 private:
  class Driving;
  using Key = std::pair<int, std::int64_t>;  // of an operation: group, sequence
  using Clock = std::chrono::steady_clock;

  struct Outgoing {
    Message message;
    std::shared_ptr<OwnCall> operation;  // of a call
  };

  void post(Outgoing outgoing, bool wakes = true);
  void post(Message::Kind kind, const OwnCall& operation, bool unwinding);
  bool progress();
  bool progress_if_free();
  bool progress_locked();
  bool try_progress();
  bool send_posted();
  bool receive();
  bool move_data();
  bool progress_on_device(OwnCall& operation);
  bool progress_on_host(OwnCall& operation);
  void check_devices();
  void report_devices(const std::string& failure);
  void on_message(const Message& message);
  void on_agreed(const Message& message);
  void let_move(const std::shared_ptr<OwnCall>& operation);
  void send_to_coordinator(const Message& message);
  void beat();
  void check_others();
  [[noreturn]] void kill(const std::string& why);
  void close();
  void communication_thread();
  bool has_open_calls();
  void wake();
  [[noreturn]] void throw_aborted(bool unwinding);
  void check_thread(const char* what) const;

  Job& job_;
  const int number_;  // of this world
  const bool checks_ = checks_calls();
  std::shared_ptr<Membership> world_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const OwnCall* asked_about_ = nullptr;  // of the rank's thread
  std::int64_t times_asked_ = 0;
  Clock::duration last_gap_ = Clock::duration::max();  // between a call and the wait for it

  mutable std::mutex inbox_mutex_;
  std::vector<Outgoing> inbox_;       // what is to be sent
  std::vector<const OwnCall*> held_;  // called; their Works neither waited for nor destroyed

  std::mutex mutex_;  // guards all below, and every call of job_
  std::unique_ptr<Coordinator> coordinator_;
  std::map<Key, std::shared_ptr<OwnCall>> called_;  // not agreed on yet
  std::deque<std::shared_ptr<OwnCall>> agreed_;     // their data moves in this order
  std::unique_ptr<Transfer> transfer_;              // of the first of them, on the host
  std::unique_ptr<DeviceCollectives> devices_;      // made at first use
  bool has_reported_devices_ = false;               // that they have failed, or another process has
  SumBuffers buffers_;
  TransportBytes scratch_;  // of plans
  std::optional<std::string> reason_;
  std::string provisional_reason_;
  std::optional<Message> end_;
  bool closed_ = false;
  Liveness liveness_;
  std::optional<int> left_;  // a process whose program has ended
  Clock::time_point left_at_{};
  std::atomic<bool> stopped_ = false;  // reason_ or provisional_reason_ is set

  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool is_woken_ = false;
  bool is_closing_ = false;
  std::atomic<int> driving_ = 0;  // rank's threads that drive the engine now
  std::thread communication_;
};

/// This process's place in `group`. Used from the rank's thread only.
std::shared_ptr<Backend> make_backend(std::shared_ptr<Engine> engine,
                                      std::shared_ptr<Membership> group);

}  // namespace fsdp::processes
