#include "comm/thread_rendezvous.h"

#include "base/check.h"
#include "base/thread_start.h"
#include "comm/thread_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

namespace fsdp::threads {
namespace {

/// A collective of a device that has failed is noticed that late, if no rank calls another.
constexpr std::chrono::milliseconds kBetweenChecks{100};

int processors() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

bool is_unwinding() { return std::uncaught_exceptions() > 0; }

}  // namespace

Rendezvous::Rendezvous(int world_size, std::chrono::milliseconds patience, DeviceData device_data)
    : agreement_(world_size, patience, *this),
      rank_threads_(static_cast<std::size_t>(world_size)),
      devices_(make_device_plane(device_data)) {
  start_threads(
      threads_, std::min(world_size, processors()),
      fmt::format("communication threads of a world of {} ranks", world_size), "Use fewer ranks",
      [this](int thread) { communication_thread(thread == 0); },
      [this] { end_communication_threads(); });
}

Rendezvous::~Rendezvous() { close(); }

std::shared_ptr<ChunkedOperation> Rendezvous::call(const std::shared_ptr<Group>& group, int member,
                                                   const Collective& call, SplitChoice choice) {
  Lock lock(mutex_);
  const int rank = group->members[static_cast<std::size_t>(member)];
  if (agreement_.stopped()) throw_aborted(lock, rank);
  check_thread(rank, name_of(call.op));
  auto operation = std::static_pointer_cast<ChunkedOperation>(
      agreement_.call(group, member, call, choice, is_unwinding()));
  if (agreement_.stopped()) throw_aborted(lock, rank);
  thread_of(rank).held.push_back(operation.get());
  if (has_small_work()) work(lock);
  return operation;
}

void Rendezvous::wait(int rank, const ChunkedOperation& operation) {
  Lock lock(mutex_);
  RankThread& self = thread_of(rank);
  std::erase(self.held, &operation);
  if (!is_on_thread_of(rank)) return wait_as_stranger(lock, rank, operation);
  agreement_.computes(rank);
  const bool unwinding = is_unwinding();
  if (!operation.done) agreement_.waits(rank, operation, unwinding);
  while (!operation.done) {
    const bool drained = agreement_.stopped() && operation.running == 0;
    if (drained && (agreement_.reason() || unwinding)) break;
    if (active_.empty()) {
      sleep(lock, self);
    } else {
      work(lock);
    }
  }
  agreement_.computes(rank);
  if (!active_.empty())
    work_or_close_.notify_one();  // this rank helps no longer: see wake_helpers()
  if (operation.done) return;
  if (unwinding && !agreement_.reason()) throw Aborted(agreement_.provisional_reason());
  throw_aborted(lock, rank);
}

bool Rendezvous::is_done(int rank, const ChunkedOperation& operation) {
  const Lock lock(mutex_);
  if (!agreement_.stopped()) check_thread(rank, "is_done()");
  agreement_.asks(rank, operation, is_unwinding());
  return operation.done || (agreement_.stopped() && operation.running == 0);
}

void Rendezvous::let_go(int rank, const ChunkedOperation& operation) {
  const Lock lock(mutex_);
  std::erase(thread_of(rank).held, &operation);
  agreement_.lets_go(rank, operation);
}

// ---- moving on

std::shared_ptr<control::Operation> Rendezvous::make_operation() {
  return std::make_shared<ChunkedOperation>();
}

void Rendezvous::on_agreed(const std::shared_ptr<control::Operation>& operation) {
  advance(*operation->group);
}

// Starts the group's oldest operation, if all its ranks are there; those that move nothing (a
// barrier) are done at once, and the next has its turn.
void Rendezvous::advance(Group& group) {
  while (!agreement_.stopped() && !group.open.empty()) {
    const auto operation = std::static_pointer_cast<ChunkedOperation>(group.open.front());
    if (operation->transfer || operation->arrived < group.size()) return;
    if (operation->calls.front().on_device == nullptr) {
      operation->transfer = std::make_unique<HostTransfer>(operation->calls);
    } else {
      operation->transfer = devices_->make_transfer(group, operation->calls);
    }
    if (operation->transfer->chunks() > 0) {
      enqueue(operation);
      return;
    }
    finish(*operation);
  }
}

void Rendezvous::finish(ChunkedOperation& operation) {
  operation.ended = std::chrono::steady_clock::now();
  agreement_.finish(operation);
  wake_waiters(operation);
}

void Rendezvous::enqueue(const std::shared_ptr<ChunkedOperation>& operation) {
  if (operation->transfer->is_small()) {
    active_.push_front(operation);  // whoever is here does it before leaving: see work()
    return;
  }
  active_.push_back(operation);
  wake_helpers(std::min<std::int64_t>(operation->transfer->chunks(), processors()));
}

// Ranks that wait come first: their processors have nothing else to do.
void Rendezvous::wake_helpers(std::int64_t helpers) {
  for (int rank = 0; rank < world()->size(); ++rank) {
    if (helpers == 0) return;
    const control::RankState& state = agreement_.rank(rank);
    if (state.activity != control::Activity::waits || state.waits_for->done) continue;
    thread_of(rank).wake.notify_one();
    --helpers;
  }
  for (; helpers > 0; --helpers) work_or_close_.notify_one();
}

void Rendezvous::wake_all() {
  for (RankThread& rank : rank_threads_) rank.wake.notify_one();
}

void Rendezvous::wake_waiters(const ChunkedOperation& operation) {
  for (const int rank : operation.group->members)
    if (agreement_.rank(rank).waits_for == &operation) thread_of(rank).wake.notify_one();
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
  const std::shared_ptr<ChunkedOperation> operation = active_.front();
  const std::int64_t chunk = operation->next_chunk++;
  const std::int64_t chunks = operation->transfer->chunks();
  if (operation->next_chunk == chunks) active_.pop_front();
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
  if (!error.empty()) agreement_.fail(error);
  if (agreement_.stopped() && operation->running == 0) wake_waiters(*operation);
}

void Rendezvous::communication_thread(bool checks_devices) {
  const bool checks = checks_devices && devices_ != nullptr && devices_->needs_checks();
  const auto has_work = [this] { return closing_ || !active_.empty(); };
  Lock lock(mutex_);
  for (;;) {
    if (!checks) {
      work_or_close_.wait(lock, has_work);
    } else if (!work_or_close_.wait_for(lock, kBetweenChecks, has_work)) {
      check_devices(lock);
      continue;
    }
    if (closing_) return;
    work(lock);
  }
}

void Rendezvous::check_devices(Lock& lock) {
  lock.unlock();
  std::string error;
  try {
    devices_->check();
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  lock.lock();
  if (!error.empty()) agreement_.fail(error);
}

// ---- a rank's side of it

namespace {

class ThreadPending : public Work::Pending {
 public:
  ThreadPending(std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<ChunkedOperation> operation,
                int member, int world_rank)
      : rendezvous_(std::move(rendezvous)),
        operation_(std::move(operation)),
        member_(member),
        world_rank_(world_rank) {}
  ~ThreadPending() override {
    if (is_held_) rendezvous_->let_go(world_rank_, *operation_);
  }

  bool is_done() const override { return rendezvous_->is_done(world_rank_, *operation_); }
  void wait() override {
    is_held_ = false;
    rendezvous_->wait(world_rank_, *operation_);
    const StreamEvent* const ended = operation_->transfer->end_event(member_);
    if (ended == nullptr) return;
    RankDevice& device = *call().on_device->device;
    device.make_wait(device.compute(), *ended);
  }
  std::optional<std::chrono::steady_clock::time_point> ended() const override {
    if (call().on_device != nullptr) return {};  // the host does not know
    return operation_->ended;
  }

 private:
  const Collective& call() const { return operation_->calls[static_cast<std::size_t>(member_)]; }

  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<ChunkedOperation> operation_;
  int member_;
  int world_rank_;
  bool is_held_ = true;
};

class ThreadBackend : public Backend {
 public:
  ThreadBackend(std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<Group> group, int member)
      : rendezvous_(std::move(rendezvous)), group_(std::move(group)), member_(member) {}

  int rank() const override { return member_; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    FSDP_CHECK(call.numel == 0 || call.in != nullptr,
               "{} of {}: the thread group copies real bytes, but this tensor has none; a tensor "
               "on the fake device needs the fake group",
               name_of(call.op), to_string(call.label));
    return std::make_unique<ThreadPending>(rendezvous_, rendezvous_->call(group_, member_, call),
                                           member_, world_rank());
  }

  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    Collective call{.op = CollectiveOp::split};
    call.sequence = sequence;
    const auto operation = rendezvous_->call(group_, member_, call, {.color = color, .key = key});
    rendezvous_->wait(world_rank(), *operation);

    const std::shared_ptr<Group>& part = operation->parts[static_cast<std::size_t>(member_)];
    const auto place = std::find(part->members.begin(), part->members.end(), world_rank());
    return make_backend(rendezvous_, part, static_cast<int>(place - part->members.begin()));
  }

  void abort(const std::string& reason) override { rendezvous_->abort(world_rank(), reason); }

 private:
  int world_rank() const { return group_->members[static_cast<std::size_t>(member_)]; }

  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<Group> group_;
  int member_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(std::shared_ptr<Rendezvous> rendezvous,
                                      std::shared_ptr<Group> group, int member) {
  return std::make_shared<ThreadBackend>(std::move(rendezvous), std::move(group), member);
}

}  // namespace fsdp::threads
