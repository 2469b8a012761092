#include "comm/thread_rendezvous.h"

#include "base/check.h"
#include "base/thread_start.h"
#include "comm/thread_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdp::threads {
namespace {

int processors() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

void stop_polling(RankState& rank) {
  rank.asked_about = nullptr;
  rank.times_asked = 0;
  if (rank.activity != Activity::polls) return;
  rank.activity = Activity::computes;
  rank.waits_for = nullptr;
}

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Rendezvous::Rendezvous(int world_size, std::chrono::milliseconds patience)
    : ranks_(static_cast<std::size_t>(world_size)),
      groups_{std::make_shared<Group>(all_ranks(world_size))},
      patience_(patience) {
  start_threads(
      threads_, std::min(world_size, processors()),
      fmt::format("communication threads of a world of {} ranks", world_size), "Use fewer ranks",
      [this](int) { communication_thread(); }, [this] { end_communication_threads(); });
}

Rendezvous::~Rendezvous() { close(); }

std::shared_ptr<Operation> Rendezvous::call(const std::shared_ptr<Group>& group, int member,
                                            const Collective& call, SplitChoice choice) {
  Lock lock(mutex_);
  const auto index = static_cast<std::size_t>(member);
  const int rank = group->members[index];
  RankState& self = state(rank);
  if (stopped_) throw_aborted(lock, rank);
  check_thread(rank, name_of(call.op));
  self.unwinding = std::uncaught_exceptions() > 0;
  stop_polling(self);

  // The first rank to get here opens the operation; all others find it, in the order of calls.
  Group::Progress& progress = group->progress[index];
  const std::int64_t oldest = group->open.empty() ? progress.called : group->open.front()->sequence;
  const auto place = static_cast<std::size_t>(progress.called - oldest);
  if (place == group->open.size()) {
    auto opened = std::make_shared<Operation>();
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
  self.held.push_back(operation.get());
  ++progress.called;
  ++operation->arrived;
  if (operation->arrived < group->size()) return operation;

  const std::string difference = disagreement(*operation);
  if (!difference.empty()) {
    stop_for(group->members, difference + "\n" + table_of(ranks_, *operation));
    throw_aborted(lock, rank);
  }
  advance(*group);
  if (has_small_work()) work(lock);
  return operation;
}

void Rendezvous::wait(int rank, const Operation& operation) {
  Lock lock(mutex_);
  RankState& self = state(rank);
  std::erase(self.held, &operation);
  if (self.thread != std::this_thread::get_id()) return wait_as_stranger(lock, rank, operation);
  stop_polling(self);
  if (!operation.done) {
    self.activity = Activity::waits;
    self.waits_for = &operation;
    self.unwinding = std::uncaught_exceptions() > 0;
    settle_if_swallowed(rank);
    if (!stopped_) detect_deadlock(rank);
  }
  while (!operation.done) {
    const bool drained = stopped_ && operation.running == 0;
    if (drained && (reason_ || self.unwinding)) break;
    if (active_.empty()) {
      sleep(lock, self);
    } else {
      work(lock);
    }
  }
  self.activity = Activity::computes;
  self.waits_for = nullptr;
  if (!active_.empty())
    work_or_close_.notify_one();  // this rank helps no longer: see wake_helpers()
  if (operation.done) return;
  if (self.unwinding && !reason_) throw Aborted(provisional_reason_);
  throw_aborted(lock, rank);
}

bool Rendezvous::is_done(int rank, const Operation& operation) {
  const Lock lock(mutex_);
  if (!stopped_) check_thread(rank, "is_done()");
  settle_if_swallowed(rank);
  if (!operation.done && !stopped_) note_poll(rank, operation);
  return operation.done || (stopped_ && operation.running == 0);
}

void Rendezvous::let_go(int rank, const Operation& operation) {
  const Lock lock(mutex_);
  std::erase(state(rank).held, &operation);
  if (state(rank).asked_about == &operation) stop_polling(state(rank));
}

// ---- moving on

// Starts the group's oldest operation, if all its ranks are there; those that move nothing (a
// barrier) are done at once, and the next has its turn.
void Rendezvous::advance(Group& group) {
  while (!stopped_ && !group.open.empty()) {
    const std::shared_ptr<Operation> operation = group.open.front();
    if (operation->transfer || operation->arrived < group.size()) return;
    if (operation->calls.front().op == CollectiveOp::split) {
      operation->parts = make_parts(*operation);
      for (const auto& part : operation->parts)
        if (std::find(groups_.begin(), groups_.end(), part) == groups_.end())
          groups_.push_back(part);
    }
    operation->transfer.emplace(operation->calls);
    if (operation->transfer->chunks() > 0) {
      enqueue(operation);
      return;
    }
    finish(*operation);
  }
}

void Rendezvous::finish(Operation& operation) {
  operation.done = true;
  wake_waiters(operation);
  operation.group->open.pop_front();
}

void Rendezvous::enqueue(const std::shared_ptr<Operation>& operation) {
  if (operation->transfer->is_small()) {
    active_.push_front(operation);  // whoever is here does it before leaving: see work()
    return;
  }
  active_.push_back(operation);
  wake_helpers(std::min<std::int64_t>(operation->transfer->chunks(), processors()));
}

// Ranks that wait come first: their processors have nothing else to do.
void Rendezvous::wake_helpers(std::int64_t helpers) {
  for (RankState& rank : ranks_) {
    if (helpers == 0) return;
    if (rank.activity != Activity::waits || rank.waits_for->done) continue;
    rank.wake.notify_one();
    --helpers;
  }
  for (; helpers > 0; --helpers) work_or_close_.notify_one();
}

void Rendezvous::wake_waiters(const Operation& operation) {
  for (const int member : operation.group->members) {
    RankState& rank = state(member);
    if (rank.waits_for != &operation) continue;
    if (rank.activity == Activity::polls) stop_polling(rank);
    rank.wake.notify_one();
  }
}

bool Rendezvous::has_small_work() const {
  return !active_.empty() && active_.front()->transfer->is_small();
}

// One chunk; and if finishing it let a small operation begin, that too, since nobody was woken for
// it.
void Rendezvous::work(Lock& lock) {
  do {
    run_chunk(lock);
  } while (has_small_work());
}

void Rendezvous::run_chunk(Lock& lock) {
  const std::shared_ptr<Operation> operation = active_.front();
  const std::int64_t chunk = operation->next_piece++;
  const std::int64_t chunks = operation->transfer->chunks();
  if (operation->next_piece == chunks) active_.pop_front();
  ++operation->running;

  lock.unlock();
  std::string error;
  try {
    operation->transfer->run(chunk);
  } catch (const std::exception& exception) {  // out of memory, in the middle of somebody's call
    error = exception.what();
  }
  lock.lock();

  --operation->running;
  try {
    if (error.empty() && ++operation->finished == chunks) {
      finish(*operation);
      advance(*operation->group);
    }
  } catch (const std::exception& exception) {  // and here, on a thread that nobody listens to
    error = exception.what();
  }
  if (!error.empty() && !stopped_) stop(error + "\n" + tables());
  if (stopped_ && operation->running == 0) wake_waiters(*operation);
}

void Rendezvous::communication_thread() {
  Lock lock(mutex_);
  for (;;) {
    work_or_close_.wait(lock, [this] { return closing_ || !active_.empty(); });
    if (closing_) return;
    work(lock);
  }
}

}  // namespace fsdp::threads
