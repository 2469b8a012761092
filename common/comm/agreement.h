/// @file
/// @ingroup comm
/// The control plane of a world of ranks: which calls have arrived, whether they match, which ranks
/// are deadlocked, and when and why the world stops.
#pragma once

#include "comm/control_state.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::control {

/// Decides what the ranks of one world may do. It uses neither threads nor messages: a backend
/// reports what the ranks do, one event at a time, and a Listener is called with what follows. So
/// every backend gives the same verdict, in the same words.
///
/// A collective may move data when the last of its ranks has called it, and the calls match. So a
/// rank can only wait for calls that other ranks have yet to make. This makes a hang visible: it is
/// a chain of ranks in the wait-for graph (control_report.h). The chain can appear when a rank
/// begins to wait or returns, and is looked for then. A rank that polls also counts as waiting: if
/// a rank it needs has ended, or after kPollsThatAreAWait calls of is_done() in a row.
///
/// After a failure the world stops, for good and in all groups.
///
/// One message needs a wait. Suppose an exception unwinds a rank (the *culprit*), which would then
/// wait forever in the destructor of a Work. The reason to report is that exception, but its text
/// is known only when the culprit's body has ended. So the other ranks wait until it ends, at most
/// for `patience`, because the culprit may catch the exception and compute for a long time. If it
/// uses any group again, it has caught the exception. Then, and after `patience`, the reported
/// reason is the chain of ranks that was found.
class Agreement {
 public:
  /// Called from within the events below.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual std::shared_ptr<Operation> make_operation() = 0;
    /// All ranks have called `operation`, and their calls match.
    virtual void on_agreed(const std::shared_ptr<Operation>& operation) = 0;
    /// Nothing more may begin.
    virtual void on_stop() = 0;
    /// reason() is known.
    virtual void on_reason() = 0;
  };

  Agreement(int world_size, std::chrono::milliseconds patience, Listener& listener);

  /// The group of all ranks.
  const std::shared_ptr<Group>& world() const { return groups_.front(); }
  const std::vector<RankState>& ranks() const { return ranks_; }
  const RankState& rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  // ---- what a rank does; `rank` is a world rank. `unwinding`: an exception is unwinding it.

  std::shared_ptr<Operation> call(const std::shared_ptr<Group>& group, int member,
                                  const Collective& call, SplitChoice choice, bool unwinding);
  /// It begins to wait, and can do nothing else until computes().
  void waits(int rank, const Operation& operation, bool unwinding);
  void computes(int rank);
  /// It has called is_done() `times` times, and the answer was no.
  void asks(int rank, const Operation& operation, bool unwinding, std::int64_t times = 1);
  /// It no longer holds a handle of `operation`.
  void lets_go(int rank, const Operation& operation);
  /// It uses a group. If it is the culprit, it has swallowed its exception.
  void goes_on(int rank, bool unwinding);
  void aborts(int rank, const std::string& reason);
  /// `leaked`: the collective of a Work that it has neither waited for nor destroyed; "" = none.
  void returned(int rank, const std::string& leaked);
  /// @returns true if this is the first failure, not a consequence of another
  bool threw(int rank, const std::string& what);

  // ---- what the backend does

  /// The data of `operation`, the oldest of its group, has moved.
  void finish(Operation& operation);
  /// Stops the world because of `what`, unless it has stopped.
  void fail(const std::string& what);
  /// The ranks have ended.
  void close();

  // ---- how the world stopped

  bool stopped() const { return stopped_; }
  /// "Aborted: …". It may be set after the stop: see the class.
  const std::optional<std::string>& reason() const { return reason_; }
  /// The rank whose exception will be the reason; -1 = none.
  int culprit() const { return culprit_; }
  /// What the reason will be if the culprit does not throw.
  const std::string& provisional_reason() const { return provisional_reason_; }
  std::chrono::steady_clock::time_point end_of_patience() const { return end_of_patience_; }
  void lose_patience();

 private:
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void detect_deadlock(int from);
  void stop(const std::string& reason);
  void stop_for(const std::vector<int>& involved, const std::string& reason);
  void stop_and_ask(int culprit, const std::string& reason);
  void settle(const std::string& reason);
  std::string tables() const;

  std::vector<RankState> ranks_;
  std::vector<std::shared_ptr<Group>> groups_;
  bool any_returned_ = false;
  bool stopped_ = false;
  std::optional<std::string> reason_;
  int culprit_ = -1;
  std::string provisional_reason_;
  std::chrono::steady_clock::time_point end_of_patience_{};
  const std::chrono::milliseconds patience_;
  Listener& listener_;
};

}  // namespace fsdp::control
