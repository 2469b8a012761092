// The engine as its rank's thread sees it; engine.cpp has what moves it on.
#include "base/check.h"
#include "comm/control_report.h"
#include "comm/processes/engine.h"
#include "comm/processes/pause.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

namespace fsdp::processes {
namespace {

/// A wait this short is not worth a message.
constexpr std::chrono::milliseconds kShortWait{1};
/// A rank that waits so soon after a call drives it itself. To wake another thread for it would
/// take longer than a small collective.
constexpr std::chrono::microseconds kShortGap{50};
/// A rank that waits has nothing better to do than to look, and a sleep takes fifty microseconds.
constexpr int kPatientYields = 1'000;
/// So many questions are told at once.
constexpr std::int64_t kQuestionsTold = 1'000;

bool is_unwinding() { return std::uncaught_exceptions() > 0; }

}  // namespace

bool checks_calls() {
  constexpr const char* kVariable = "FSDP_MPI_UNCHECKED";
  const char* text = std::getenv(kVariable);
  const std::string_view value = text == nullptr ? "0" : text;
  if (value != "0" && value != "1") {
    throw InputError(
        fmt::format("{}: is '{}', but must be 1 = ranks do not compare their calls, or "
                    "0 = they do",
                    kVariable, value));
  }
  return value == "0";
}

/// While one exists, the rank's thread drives. The other thread goes on with what is open then.
class Engine::Driving {
 public:
  explicit Driving(Engine& engine) : engine_(engine) { ++engine_.driving_; }
  ~Driving() {
    if (--engine_.driving_ == 0 && engine_.has_open_calls()) engine_.wake();
  }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;

 private:
  Engine& engine_;
};

void Engine::call(const std::shared_ptr<OwnCall>& operation) {
  if (stopped_) throw_aborted(is_unwinding());
  check_thread(name_of(operation->call.op).data());
  const CollectiveOp op = operation->call.op;
  operation->is_checked = checks_ || op == CollectiveOp::split || op == CollectiveOp::barrier;
  if (operation->is_checked) operation->call.sequence = operation->group->called++;
  asked_about_ = nullptr;
  {
    const std::lock_guard lock(inbox_mutex_);
    held_.push_back(operation.get());
  }
  Message message{.kind = Message::Kind::call};
  message.group = operation->group->number;
  message.sequence = operation->call.sequence;
  message.call = operation->call;
  if (message.call.on_device) message.call.on_device = std::make_shared<const DeviceOperands>();
  message.choice = operation->choice;
  message.unwinding = is_unwinding();
  operation->called = Clock::now();
  post({std::move(message), operation}, last_gap_ > kShortGap);
  progress_if_free();  // sent at once, before the other thread is awake
}

void Engine::wait(OwnCall& operation) {
  {
    const std::lock_guard lock(inbox_mutex_);
    std::erase(held_, &operation);
  }
  const bool is_own = std::this_thread::get_id() == thread_;
  if (!is_own) {
    abort(
        fmt::format("its Work of {} was waited for or destroyed by a thread that is no rank's, but "
                    "a Work belongs to the thread that made it",
                    control::describe(operation.call, operation.group->members)));
  } else if (std::exchange(asked_about_, nullptr) != nullptr && times_asked_ >= kQuestionsTold) {
    post(Message::Kind::computes, operation, false);
  }
  const Driving driving(*this);
  const bool unwinding = is_unwinding();
  const Clock::time_point begin = Clock::now();
  if (is_own) last_gap_ = begin - operation.called;
  bool told = !is_own;
  Pause pause(kPatientYields);
  while (!operation.done) {
    if (progress()) {
      pause.reset();
      continue;
    }
    if (stopped_) {
      const std::lock_guard lock(mutex_);
      if (!operation.agreed || closed_) break;
    }
    if (!told && Clock::now() - begin > kShortWait) {
      post(Message::Kind::waits, operation, unwinding);
      told = true;
      continue;
    }
    sleep(pause.next(true));
  }
  if (!operation.done || operation.failed || !is_own) throw_aborted(unwinding);
}

bool Engine::is_done(OwnCall& operation) {
  if (!stopped_) check_thread("is_done()");
  if (operation.done) return true;
  if (stopped_) {
    const std::lock_guard lock(mutex_);
    if (!reason_ && !is_unwinding()) post(Message::Kind::goes_on, operation, false);
    return !operation.agreed || closed_;
  }
  if (asked_about_ != &operation) times_asked_ = 0;
  asked_about_ = &operation;
  if (++times_asked_ % kQuestionsTold == 0) {
    post(Message::Kind::asks, operation, is_unwinding());
  }
  progress();
  return operation.done;
}

std::string Engine::leaked() const {
  const std::lock_guard lock(inbox_mutex_);
  if (held_.empty()) return "";
  return control::describe(held_.front()->call, held_.front()->group->members);
}

Message Engine::finish(const Message& ended) {
  const Driving driving(*this);
  if (world_) post({ended, nullptr});
  for (Pause pause;;) {
    const bool moved = progress();
    {
      const std::lock_guard lock(mutex_);
      if (end_ && agreed_.empty() && job_.has_sent_control()) break;
    }
    if (moved) pause.reset();
    sleep(pause.next(false));
  }
  close();
  return *end_;
}

void Engine::abort(const std::string& reason) {
  Message message{.kind = Message::Kind::aborts};
  message.text = reason;
  post({std::move(message), nullptr});
}

// A rank whose exception is to be the reason goes on unwinding; or it has swallowed the exception,
// and must be told the reason like the others.
void Engine::throw_aborted(bool unwinding) {
  const Driving driving(*this);
  bool told = false;
  for (Pause pause;;) {
    {
      const std::lock_guard lock(mutex_);
      if (reason_) throw Aborted(*reason_);
      if (unwinding && !provisional_reason_.empty()) throw Aborted(provisional_reason_);
    }
    if (!told) post({Message{.kind = Message::Kind::goes_on}, nullptr});
    told = true;
    if (progress()) pause.reset();
    sleep(pause.next(true));
  }
}

void Engine::check_thread(const char* what) const {
  FSDP_CHECK(std::this_thread::get_id() == thread_,
             "{} on a group of rank {} was called by a thread that is no rank's: a ProcessGroup "
             "and its Works belong to the thread that made them",
             what, job_.rank());
}

void Engine::post(Outgoing outgoing, bool wakes) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(outgoing));
  }
  if (wakes && driving_ == 0) wake();
}

void Engine::post(Message::Kind kind, const OwnCall& operation, bool unwinding) {
  if (!operation.is_checked) return;  // nobody knows it
  Message message{.kind = kind};
  message.group = operation.group->number;
  message.sequence = operation.call.sequence;
  message.unwinding = unwinding;
  message.times = kQuestionsTold;
  post({std::move(message), nullptr});
}

// ---- its Backend

namespace {

class ProcessPending : public Work::Pending {
 public:
  ProcessPending(std::shared_ptr<Engine> engine, std::shared_ptr<OwnCall> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}

  bool is_done() const override { return engine_->is_done(*operation_); }
  void wait() override {
    engine_->wait(*operation_);
    if (operation_->ended_on_device == nullptr) return;
    RankDevice& device = *operation_->call.on_device->device;
    device.make_wait(device.compute(), *operation_->ended_on_device);
  }
  std::optional<std::chrono::steady_clock::time_point> ended() const override {
    if (operation_->call.on_device != nullptr) return {};  // the host does not know
    return operation_->ended;
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<OwnCall> operation_;
};

class ProcessBackend : public Backend {
 public:
  ProcessBackend(std::shared_ptr<Engine> engine, std::shared_ptr<Membership> group)
      : engine_(std::move(engine)), group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    FSDP_CHECK(call.numel == 0 || call.in != nullptr,
               "{} of {}: processes send real bytes, but this tensor has none; a tensor on "
               "the fake device needs the fake group",
               name_of(call.op), to_string(call.label));
    auto operation = make_operation(call);
    engine_->call(operation);
    return std::make_unique<ProcessPending>(engine_, std::move(operation));
  }

  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    Collective call{.op = CollectiveOp::split};
    call.sequence = sequence;
    const auto operation = make_operation(call);
    operation->choice = {color, key};
    engine_->call(operation);
    engine_->wait(*operation);
    return make_backend(engine_, operation->part);
  }

  void abort(const std::string& reason) override { engine_->abort(reason); }

 private:
  std::shared_ptr<OwnCall> make_operation(const Collective& call) const {
    auto operation = std::make_shared<OwnCall>();
    operation->group = group_;
    operation->call = call;
    return operation;
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Membership> group_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(std::shared_ptr<Engine> engine,
                                      std::shared_ptr<Membership> group) {
  return std::make_shared<ProcessBackend>(std::move(engine), std::move(group));
}

}  // namespace fsdp::processes
