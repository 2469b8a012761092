#include "comm/processes/engine.h"

#include "base/check.h"
#include "comm/processes/pause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <system_error>

namespace fsdp::processes {
namespace {

using std::chrono::microseconds;

/// A process may end its program a little before others hear that the world has ended.
constexpr std::chrono::seconds kLeftGrace{5};
/// Each time a thread wakes, it takes the processor from the one that drives, and copies.
constexpr microseconds kWhileDriving{1'000};

int next_number() {
  static int number = 0;
  return number++;
}

std::shared_ptr<Membership> world_of(const Job& job, int world_size) {
  if (job.rank() >= world_size) return nullptr;
  auto world = std::make_shared<Membership>();
  world->members.resize(static_cast<std::size_t>(world_size));
  std::iota(world->members.begin(), world->members.end(), 0);
  world->rank = job.rank();
  return world;
}

}  // namespace

Engine::Engine(Job& job, int world_size, std::chrono::milliseconds patience)
    : job_(job),
      number_(next_number()),
      world_(world_of(job, world_size)),
      liveness_(silence_limit(), Clock::now()) {
  if (job.rank() == 0) {
    const auto send_to = [this](int rank, Message message) {
      message.world = number_;
      if (rank == 0) return on_message(message);
      if (message.kind == Message::Kind::end) {
        job_.send_last_control(rank, to_bytes(message));
      } else {
        job_.send_control(rank, to_bytes(message));
      }
    };
    coordinator_ = std::make_unique<Coordinator>(world_size, job.size(), patience, send_to);
  }
  job_.set_running(true);
  if (!world_) return;
  try {
    communication_ = std::thread([this] { communication_thread(); });
  } catch (const std::system_error& error) {
    kill(fmt::format("rank {}: no communication thread could be started: {}", job_.rank(),
                     error.what()));
  }
}

Engine::~Engine() { close(); }

void Engine::close() {
  {
    const std::lock_guard lock(mutex_);
    // Then a device may wait for one whose process has failed.
    const bool has_failed = stopped_ || !end_ || end_->rank >= 0;
    if (has_failed && devices_) devices_->give_up("the ranks of this group have ended");
    closed_ = true;
    if (!reason_) reason_ = "Aborted: the ranks of this group have ended";
    stopped_ = true;
    job_.set_running(false);
  }
  {
    const std::lock_guard lock(wake_mutex_);
    is_closing_ = true;
  }
  wake_.notify_one();
  if (communication_.joinable()) communication_.join();
  devices_.reset();
}

void Engine::communication_thread() {
  Pause pause;
  for (bool is_urgent = false;;) {
    {
      std::unique_lock lock(wake_mutex_);
      const microseconds time = driving_ > 0 ? kWhileDriving : pause.next(is_urgent);
      wake_.wait_for(lock, time, [this] { return is_woken_ || is_closing_; });
      if (is_closing_) return;
      if (is_woken_) pause.reset();
      is_woken_ = false;
    }
    if (driving_ > 0) continue;
    if (progress()) pause.reset();
    is_urgent = has_open_calls();
  }
}

bool Engine::has_open_calls() {
  const std::lock_guard lock(mutex_);
  return !called_.empty() || !agreed_.empty() || (coordinator_ && coordinator_->has_open_calls());
}

void Engine::wake() {
  {
    const std::lock_guard lock(wake_mutex_);
    is_woken_ = true;
  }
  wake_.notify_one();
}

// Whatever can be done without waiting. @returns whether anything was
bool Engine::progress() {
  const std::lock_guard lock(mutex_);
  return progress_locked();
}

// The same, but nothing if another thread is at it.
bool Engine::progress_if_free() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && progress_locked();
}

bool Engine::progress_locked() {
  if (closed_) return false;
  try {
    return try_progress();
  } catch (const std::exception& error) {  // in the middle of a message: nobody can go on
    kill(fmt::format("rank {}: {}", job_.rank(), error.what()));
  }
}

bool Engine::try_progress() {
  const bool sent = send_posted();
  const bool received = receive();
  const bool moved = move_data();
  check_devices();
  beat();
  check_others();
  return sent || received || moved;
}

bool Engine::send_posted() {
  std::vector<Outgoing> posted;
  {
    const std::lock_guard lock(inbox_mutex_);
    posted.swap(inbox_);
  }
  if (end_) return false;  // too late
  for (Outgoing& outgoing : posted) {
    if (outgoing.operation && !outgoing.operation->is_checked) {
      let_move(outgoing.operation);
      continue;
    }
    if (outgoing.operation) {
      const Key key{outgoing.message.group, outgoing.message.sequence};
      called_.emplace(key, std::move(outgoing.operation));
    }
    outgoing.message.world = number_;
    send_to_coordinator(outgoing.message);
  }
  return !posted.empty();
}

void Engine::send_to_coordinator(const Message& message) {
  if (coordinator_) return coordinator_->on_message(0, message);
  job_.send_control(0, to_bytes(message));
}

bool Engine::receive() {
  bool any = false;
  while (!end_) {
    const std::optional<Received> received = job_.receive_control();
    if (!received) break;
    if (!received->lost.empty()) {
      kill(
          fmt::format("rank {} has lost rank {}: {}", job_.rank(), received->from, received->lost));
    }
    if (received->bytes.empty()) {
      left_ = received->from;
      left_at_ = Clock::now();
      continue;
    }
    const Message message = from_bytes(received->bytes);
    if (message.world != number_) continue;
    liveness_.heard(received->from, Clock::now());
    if (coordinator_) {
      coordinator_->on_message(received->from, message);
    } else {
      on_message(message);
    }
    any = true;
  }
  return any;
}

void Engine::on_message(const Message& message) {
  if (message.kind == Message::Kind::agreed) return on_agreed(message);
  if (message.kind == Message::Kind::end) end_ = message;
  if (message.kind != Message::Kind::stop) return;
  if (message.is_provisional) {
    provisional_reason_ = message.text;
  } else {
    reason_ = message.text;
  }
  stopped_ = true;
  if (!message.have_devices_failed) return;
  has_reported_devices_ = true;                                     // somebody has
  if (!devices_) devices_ = std::make_unique<DeviceCollectives>();  // for what was agreed on before
  devices_->give_up(message.text);
}

void Engine::on_agreed(const Message& message) {
  const auto found = called_.find({message.group, message.sequence});
  FSDP_CHECK(found != called_.end(), "collective {} of group {} was agreed on, but never called",
             message.sequence, message.group);
  const std::shared_ptr<OwnCall> operation = found->second;
  called_.erase(found);
  if (operation->call.op == CollectiveOp::split) {
    auto part = std::make_shared<Membership>();
    part->number = message.part;
    part->members = message.members;
    const auto own = std::find(part->members.begin(), part->members.end(), job_.rank());
    part->rank = static_cast<int>(own - part->members.begin());
    operation->part = std::move(part);
  }
  let_move(operation);
}

void Engine::let_move(const std::shared_ptr<OwnCall>& operation) {
  operation->agreed = true;
  agreed_.push_back(operation);
}

bool Engine::move_data() {
  bool moved = false;
  while (!agreed_.empty()) {
    OwnCall& operation = *agreed_.front();
    const bool is_on_device = operation.call.on_device != nullptr && operation.call.numel > 0;
    moved = (is_on_device ? progress_on_device(operation) : progress_on_host(operation)) || moved;
    if (!operation.done) return moved;
    agreed_.pop_front();
  }
  return moved;
}

bool Engine::progress_on_host(OwnCall& operation) {
  if (!transfer_) {
    const Membership& group = *operation.group;
    const int size = static_cast<int>(group.members.size());
    std::byte* scratch =
        scratch_.prepare(static_cast<std::size_t>(scratch_bytes(operation.call, group.rank, size)));
    Plan plan = make_plan(operation.call, group.rank, size, scratch);
    transfer_ =
        std::make_unique<Transfer>(operation.call, std::move(plan), group.members, buffers_);
  }
  const bool moved = transfer_->progress(job_);
  if (!transfer_->is_done()) return moved;
  transfer_.reset();
  operation.ended = Clock::now();
  operation.done = true;
  return true;
}

bool Engine::progress_on_device(OwnCall& operation) {
  const Membership& group = *operation.group;
  if (!devices_) devices_ = std::make_unique<DeviceCollectives>();
  try {
    operation.ended_on_device =
        devices_->progress(job_, operation.call, group.number, group.rank, group.members);
    if (!operation.ended_on_device) return false;
  } catch (const std::exception& error) {
    operation.failed = true;
    report_devices(error.what());
  }
  operation.done = true;
  return true;
}

void Engine::check_devices() {
  if (!devices_ || end_) return;
  try {
    devices_->check();
  } catch (const std::exception& error) {
    report_devices(error.what());
  }
}

// All ranks stop, and end what their devices wait for. They may have stopped before, for another
// reason, and their devices still wait.
void Engine::report_devices(const std::string& failure) {
  if (end_ || std::exchange(has_reported_devices_, true)) return;
  Message message{.kind = Message::Kind::aborts};
  message.world = number_;
  message.text = failure;
  message.have_devices_failed = true;
  send_to_coordinator(message);
}

// Process 0 hears all others, and they hear it.
void Engine::beat() {
  if (end_ || !liveness_.is_beat_due(Clock::now())) return;
  Message beat{.kind = Message::Kind::beat};
  beat.world = number_;
  const int peers = coordinator_ ? job_.size() : 1;
  for (int rank = 0; rank < peers; ++rank)
    if (rank != job_.rank()) job_.send_control(rank, to_bytes(beat));
}

// A process that has ended sends no more; and a rank that computes forever never notices a stop.
void Engine::check_others() {
  if (left_ && !end_ && Clock::now() > left_at_ + kLeftGrace)
    kill(fmt::format("rank {}'s program has ended, and rank {} still waits for it", *left_,
                     job_.rank()));
  if (const auto silent = liveness_.silent(Clock::now()); silent && !end_)
    kill(fmt::format(
        "rank {}: nothing has been heard from rank {} for {} seconds. Its machine or the network "
        "between may have failed; if it was stopped on purpose, set FSDP_MPI_SILENCE=0 to wait",
        job_.rank(), *silent, silence_limit().count() / 1'000));
  if (!coordinator_) return;
  coordinator_->on_time();
  const std::vector<int> stragglers = coordinator_->stragglers();
  if (stragglers.empty()) return;
  kill(fmt::format("{}\nrank {} still computes {} seconds after this, and does not notice it",
                   reason_.value_or(provisional_reason_), fmt::join(stragglers, ", "),
                   Coordinator::kGrace.count()));
}

void Engine::kill(const std::string& why) {
  fmt::print(stderr, "{}\nAll ranks are ended now.\n", why);
  std::fflush(stderr);
  Job::kill();
}

}  // namespace fsdp::processes
