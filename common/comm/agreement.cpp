#include "comm/agreement.h"

#include "comm/control_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdp::control {
namespace {

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void stop_polling(RankState& rank) {
  rank.asked_about = nullptr;
  rank.times_asked = 0;
  if (rank.activity != Activity::polls) return;
  rank.activity = Activity::computes;
  rank.waits_for = nullptr;
}

}  // namespace

Agreement::Agreement(int world_size, std::chrono::milliseconds patience, Listener& listener)
    : ranks_(static_cast<std::size_t>(world_size)),
      groups_{std::make_shared<Group>(all_ranks(world_size))},
      patience_(patience),
      listener_(listener) {}

// ---- what a rank does

std::shared_ptr<Operation> Agreement::call(const std::shared_ptr<Group>& group, int member,
                                           const Collective& call, SplitChoice choice,
                                           bool unwinding) {
  const auto index = static_cast<std::size_t>(member);
  RankState& self = state(group->members[index]);
  self.unwinding = unwinding;
  stop_polling(self);

  // The first rank to get here opens the operation; all others find it, in the order of calls.
  Group::Progress& progress = group->progress[index];
  const std::int64_t oldest = group->open.empty() ? progress.called : group->open.front()->sequence;
  const auto place = static_cast<std::size_t>(progress.called - oldest);
  if (place == group->open.size()) {
    std::shared_ptr<Operation> opened = listener_.make_operation();
    opened->group = group;
    opened->sequence = progress.called;
    opened->calls.resize(group->members.size());
    opened->choices.resize(group->members.size());
    group->open.push_back(std::move(opened));
  }
  std::shared_ptr<Operation> operation = group->open[place];
  operation->calls[index] = call;
  operation->calls[index].sequence = operation->sequence;
  operation->choices[index] = choice;
  progress.last = operation->calls[index];
  progress.last.on_device = nullptr;  // the device may go with its rank
  ++progress.called;
  ++operation->arrived;
  if (operation->arrived < group->size()) return operation;

  const std::string difference = disagreement(*operation);
  if (!difference.empty()) {
    stop_for(group->members, difference + "\n" + table_of(ranks_, *operation));
    return operation;
  }
  if (call.op == CollectiveOp::split) {
    operation->parts = make_parts(*operation);
    for (const auto& part : operation->parts)
      if (std::find(groups_.begin(), groups_.end(), part) == groups_.end()) groups_.push_back(part);
  }
  listener_.on_agreed(operation);
  return operation;
}

void Agreement::waits(int rank, const Operation& operation, bool unwinding) {
  RankState& self = state(rank);
  self.activity = Activity::waits;
  self.waits_for = &operation;
  self.unwinding = unwinding;
  goes_on(rank, unwinding);
  if (!stopped_) detect_deadlock(rank);
}

void Agreement::computes(int rank) {
  stop_polling(state(rank));
  state(rank).activity = Activity::computes;
  state(rank).waits_for = nullptr;
}

// Polling is no waiting: who polls may call what others wait for after all. But a rank that has
// ended calls nothing any more, and who has asked so often does nothing else.
void Agreement::asks(int rank, const Operation& operation, bool unwinding, std::int64_t times) {
  goes_on(rank, unwinding);
  if (operation.done || stopped_) return;
  RankState& self = state(rank);
  if (self.asked_about != &operation) self.times_asked = 0;
  self.asked_about = &operation;
  self.times_asked += times;
  const bool is_hopeless = any_returned_ && can_never_finish(ranks_, operation);
  if (self.times_asked < kPollsThatAreAWait && !is_hopeless) return;
  self.activity = Activity::polls;
  self.waits_for = &operation;
  detect_deadlock(rank);
}

void Agreement::lets_go(int rank, const Operation& operation) {
  if (state(rank).asked_about == &operation) stop_polling(state(rank));
}

void Agreement::goes_on(int rank, bool unwinding) {
  if (culprit_ != rank || unwinding) return;
  if (!reason_) settle(provisional_reason_);
  culprit_ = -1;  // what it may throw from now on is a consequence
}

void Agreement::aborts(int rank, const std::string& reason) {
  const std::string text = fmt::format("rank {}: {}\n{}", rank, reason, tables());
  if (!stopped_) stop(text);
  if (culprit_ == rank && !reason_) settle(text);
}

void Agreement::returned(int rank, const std::string& leaked) {
  state(rank).activity = Activity::returned;
  any_returned_ = true;
  if (culprit_ == rank && !reason_) settle(provisional_reason_);
  if (!leaked.empty())
    fail(
        fmt::format("rank {} has returned, but its Work of {} was neither waited for nor "
                    "destroyed: it has leaked, or is kept by something that outlives the rank",
                    rank, leaked));
  for (int other = 0; other < world()->size() && !stopped_; ++other)
    if (state(other).activity == Activity::waits || state(other).activity == Activity::polls)
      detect_deadlock(other);
}

bool Agreement::threw(int rank, const std::string& what) {
  state(rank).activity = Activity::threw;
  // After a stop, an error is a consequence; unless it is the one the stop waited for.
  const bool expected = culprit_ == rank;
  if (stopped_ && !expected) return false;
  if (reason_) return true;  // the others had no more patience
  const std::string reason = fmt::format("rank {}: {}\n{}", rank, what, tables());
  if (expected) {
    settle(reason);
  } else {
    stop(reason);
  }
  return true;
}

// ---- what the backend does

void Agreement::finish(Operation& operation) {
  operation.done = true;
  for (const int member : operation.group->members) {
    RankState& rank = state(member);
    if (rank.waits_for == &operation && rank.activity == Activity::polls) stop_polling(rank);
  }
  operation.group->open.pop_front();
}

void Agreement::fail(const std::string& what) {
  if (!stopped_) stop(what + "\n" + tables());
}

void Agreement::close() {
  if (!stopped_) {
    stopped_ = true;
    reason_ = "Aborted: the ranks of this group have ended";
  }
  for (const auto& group : groups_) group->open.clear();  // they refer to each other
}

// ---- how the world stops

void Agreement::detect_deadlock(int from) {
  const auto chain = find_dead_end(ranks_, from);
  if (!chain) return;
  stop_for(*chain, explain(ranks_, *chain) + "\n" + tables());
}

// The reason is an exception rather, if one is on its way up in a rank that is involved.
void Agreement::stop_for(const std::vector<int>& involved, const std::string& reason) {
  for (const int rank : involved)
    if (state(rank).unwinding && state(rank).activity != Activity::returned)
      return stop_and_ask(rank, reason);
  stop(reason);
}

void Agreement::stop(const std::string& reason) {
  stopped_ = true;
  listener_.on_stop();
  settle(reason);
}

// See the class: the reason is what `culprit` will have thrown.
void Agreement::stop_and_ask(int culprit, const std::string& reason) {
  stopped_ = true;
  culprit_ = culprit;
  provisional_reason_ = "Aborted: " + reason;
  end_of_patience_ = std::chrono::steady_clock::now() + patience_;
  listener_.on_stop();
}

void Agreement::settle(const std::string& reason) {
  reason_ = reason.starts_with("Aborted: ") ? reason : "Aborted: " + reason;
  listener_.on_reason();
}

void Agreement::lose_patience() {
  if (stopped_ && !reason_) settle(provisional_reason_);
}

std::string Agreement::tables() const { return control::tables(ranks_, groups_); }

}  // namespace fsdp::control
