// How a world of ranks ends: the second half of Rendezvous.
#include "base/check.h"
#include "comm/thread_rendezvous.h"
#include "comm/thread_report.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::threads {
namespace {

/// Some milliseconds of asking, and nothing else.
constexpr std::int64_t kPollsThatAreAWait = 100'000;

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace

void Rendezvous::abort(int rank, const std::string& reason) {
  const Lock lock(mutex_);
  const std::string text = fmt::format("rank {}: {}\n{}", rank, reason, tables());
  if (!stopped_) stop(text);
  if (culprit_ == rank && !reason_) settle(text);
}

void Rendezvous::on_start(int rank) {
  const Lock lock(mutex_);
  state(rank).thread = std::this_thread::get_id();
}

void Rendezvous::on_return(int rank) {
  const Lock lock(mutex_);
  RankState& self = state(rank);
  self.activity = Activity::returned;
  any_returned_ = true;
  if (culprit_ == rank && !reason_) settle(provisional_reason_);
  if (!stopped_ && !self.held.empty())
    stop(
        fmt::format("rank {} has returned, but its Work of {} was neither waited for nor "
                    "destroyed: it has leaked, or is kept by something that outlives the rank\n{}",
                    rank, describe(*self.held.front(), rank), tables()));
  for (int other = 0; other < world()->size() && !stopped_; ++other)
    if (state(other).activity == Activity::waits || state(other).activity == Activity::polls)
      detect_deadlock(other);
}

void Rendezvous::on_throw(int rank, const std::exception_ptr& error) {
  const std::string what = what_of(error);
  const Lock lock(mutex_);
  state(rank).activity = Activity::threw;
  // After a stop, an error is a consequence; unless it is the one the stop waited for.
  const bool expected = culprit_ == rank;
  if (stopped_ && !expected) return;
  failure_ = {error, rank};
  if (reason_) return;  // the others had no more patience
  const std::string reason = fmt::format("rank {}: {}\n{}", rank, what, tables());
  if (expected) {
    settle(reason);
  } else {
    stop(reason);
  }
}

void Rendezvous::end_communication_threads() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  work_or_close_.notify_all();
}

void Rendezvous::close() {
  {
    const Lock lock(mutex_);
    if (!stopped_) {
      stopped_ = true;
      reason_ = "Aborted: the ranks of this group have ended";
    }
    active_.clear();
    for (const auto& group : groups_) group->open.clear();  // they refer to each other
  }
  end_communication_threads();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Rendezvous::Failure Rendezvous::failure() const {
  const Lock lock(mutex_);
  if (failure_.error || !stopped_) return failure_;
  return {std::make_exception_ptr(Aborted(*reason_)), -1};
}

// Polling is no waiting: who polls may call what others wait for after all. But a rank that has
// ended calls nothing any more, and who has asked so often does nothing else.
void Rendezvous::note_poll(int rank, const Operation& operation) {
  RankState& self = state(rank);
  if (self.asked_about != &operation) self.times_asked = 0;
  self.asked_about = &operation;
  const bool is_hopeless = any_returned_ && can_never_finish(ranks_, operation);
  if (++self.times_asked < kPollsThatAreAWait && !is_hopeless) return;
  self.activity = Activity::polls;
  self.waits_for = &operation;
  detect_deadlock(rank);
}

void Rendezvous::detect_deadlock(int from) {
  const auto chain = find_dead_end(ranks_, from);
  if (!chain) return;
  stop_for(*chain, explain(ranks_, *chain) + "\n" + tables());
}

// The reason is an exception rather, if one is on its way up in a rank that is involved.
void Rendezvous::stop_for(const std::vector<int>& involved, const std::string& reason) {
  for (const int rank : involved)
    if (state(rank).unwinding && state(rank).activity != Activity::returned)
      return stop_and_ask(rank, reason);
  stop(reason);
}

void Rendezvous::stop(const std::string& reason) {
  stopped_ = true;
  active_.clear();
  settle(reason);
}

// See the class: the reason is what `culprit` will have thrown.
void Rendezvous::stop_and_ask(int culprit, const std::string& reason) {
  stopped_ = true;
  active_.clear();
  culprit_ = culprit;
  provisional_reason_ = "Aborted: " + reason;
  end_of_patience_ = std::chrono::steady_clock::now() + patience_;
  for (RankState& rank : ranks_) rank.wake.notify_one();  // from now on they sleep with an end
}

void Rendezvous::settle(const std::string& reason) {
  reason_ = reason.starts_with("Aborted: ") ? reason : "Aborted: " + reason;
  for (RankState& rank : ranks_) rank.wake.notify_one();
}

void Rendezvous::settle_if_swallowed(int rank) {
  if (culprit_ != rank || std::uncaught_exceptions() > 0) return;
  if (!reason_) settle(provisional_reason_);
  culprit_ = -1;  // what it may throw from now on is a consequence
}

void Rendezvous::sleep(Lock& lock, RankState& self) {
  if (!stopped_ || reason_) return self.wake.wait(lock);
  const bool in_time = self.wake.wait_until(lock, end_of_patience_) == std::cv_status::no_timeout;
  if (!in_time && !reason_) settle(provisional_reason_);
}

void Rendezvous::throw_aborted(Lock& lock, int rank) {
  settle_if_swallowed(rank);
  const bool is_rank = state(rank).thread == std::this_thread::get_id();
  if (culprit_ != rank && is_rank)
    while (!reason_) sleep(lock, state(rank));
  throw Aborted(reason_ ? *reason_ : provisional_reason_);
}

// ---- who may call
std::string Rendezvous::stranger() const {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].thread == std::this_thread::get_id())
      return fmt::format("the thread of rank {}", rank);
  return "a thread that is no rank's";
}

void Rendezvous::check_thread(int rank, std::string_view what) const {
  FSDP_CHECK(
      state(rank).thread == std::this_thread::get_id(),
      "{} on a group of rank {} was called by {}: a ProcessGroup and its Works belong to the "
      "thread that made them",
      what, rank, stranger());
}

void Rendezvous::wait_as_stranger(Lock& lock, int rank, const Operation& operation) {
  if (!stopped_)
    stop(
        fmt::format("rank {}: its Work of {} was waited for or destroyed by {}, but a Work "
                    "belongs to the thread that made it\n{}",
                    rank, describe(operation, rank), stranger(), tables()));
  while (operation.running > 0) {  // a chunk takes no longer than a time slice
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  throw_aborted(lock, rank);
}

std::string Rendezvous::tables() const { return threads::tables(ranks_, groups_); }

}  // namespace fsdp::threads
