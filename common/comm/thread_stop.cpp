// How a world of ranks ends: the second half of Scheduler.
#include "base/check.h"
#include "comm/thread_report.h"
#include "comm/thread_scheduler.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::threads {
namespace {

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

void Scheduler::abort(int rank, const std::string& reason) {
  const Lock lock(mutex_);
  if (!stopped_) stop(fmt::format("rank {}: {}\n{}", rank, reason, tables()));
}

void Scheduler::on_return(int rank) {
  const Lock lock(mutex_);
  state(rank).activity = Activity::returned;
  if (culprit_ == rank && !reason_) settle(provisional_reason_);
  for (int other = 0; other < world()->size() && !stopped_; ++other)
    if (state(other).activity == Activity::waits) look_for_dead_end(other);
}

void Scheduler::on_throw(int rank, const std::exception_ptr& error) {
  const std::string what = what_of(error);
  const Lock lock(mutex_);
  state(rank).activity = Activity::threw;
  // After a stop, an error is a consequence; unless it is the one the stop waited for.
  const bool expected = culprit_ == rank && !reason_;
  if (stopped_ && !expected) return;
  failure_ = error;
  const std::string reason = fmt::format("rank {}: {}\n{}", rank, what, tables());
  if (expected) {
    settle(reason);
  } else {
    stop(reason);
  }
}

void Scheduler::close() {
  {
    const Lock lock(mutex_);
    closing_ = true;
    if (!stopped_) {
      stopped_ = true;
      reason_ = "Aborted: the ranks of this group have ended";
    }
    active_.clear();
    for (const auto& group : groups_) group->open.clear();  // they refer to each other
  }
  work_or_close_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::exception_ptr Scheduler::failure() const {
  const Lock lock(mutex_);
  if (failure_ || !stopped_) return failure_;
  return std::make_exception_ptr(Aborted(*reason_));
}

void Scheduler::look_for_dead_end(int from) {
  const auto chain = find_dead_end(ranks_, from);
  if (!chain) return;
  const std::string reason = explain(ranks_, *chain) + "\n" + tables();
  for (const int rank : *chain)
    if (state(rank).activity == Activity::waits && state(rank).unwinding)
      return stop_and_ask(rank, reason);
  stop(reason);
}

void Scheduler::stop(const std::string& reason) {
  stopped_ = true;
  active_.clear();
  settle(reason);
}

// `culprit` waits in the destructor of a Work because an exception is on its way up, and would wait
// for ever. The world stops, but the reason is that exception, whose message is not known before
// the culprit's body has ended; until then the others stay where they are.
void Scheduler::stop_and_ask(int culprit, const std::string& reason) {
  stopped_ = true;
  active_.clear();
  culprit_ = culprit;
  provisional_reason_ = "Aborted: " + reason;
  state(culprit).wake.notify_one();
}

void Scheduler::settle(const std::string& reason) {
  reason_ = reason.starts_with("Aborted: ") ? reason : "Aborted: " + reason;
  for (RankState& rank : ranks_) rank.wake.notify_one();
}

void Scheduler::throw_aborted(Lock& lock, int rank) {
  if (!reason_ && culprit_ == rank) settle(provisional_reason_);
  state(rank).wake.wait(lock, [this] { return reason_.has_value(); });
  throw Aborted(*reason_);
}

std::string Scheduler::tables() const { return threads::tables(ranks_, groups_); }

}  // namespace fsdp::threads
