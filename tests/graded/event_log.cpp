#include "graded/event_log.h"

#include "base/check.h"
#include "graded/decorated.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace fsdp::graded {
namespace {

std::optional<EventKind> kind_of(nn::CallState state) {
  switch (state) {
    case nn::CallState::after_pre_forward:
      return EventKind::forward_begin;
    case nn::CallState::before_post_forward:
      return EventKind::forward_end;
    case nn::CallState::after_pre_backward:
      return EventKind::backward_begin;
    case nn::CallState::before_post_backward:
      return EventKind::backward_end;
    default:
      return std::nullopt;
  }
}

class LoggedPending : public Work::Pending {
 public:
  LoggedPending(std::unique_ptr<Pending> inner, Collective call, std::shared_ptr<EventLog> log)
      : inner_(std::move(inner)), call_(std::move(call)), log_(std::move(log)) {}

  // Bytes may not have arrived before somebody waits: a loop that asks would never end.
  bool is_done() const override {
    FSDP_CHECK(++asked_ < 1000,
               "{} of {}/{}: is_done() was called {} times in a row and is still false, because no "
               "rank has called wait(): call wait(), which returns when the bytes have arrived",
               name_of(call_.op), call_.label.unit, name_of(call_.label.phase), asked_);
    return false;
  }
  void wait() override {
    inner_->wait();
    if (log_ != nullptr) log_->on_wait(call_);
    log_ = nullptr;  // a second wait() is none
  }

 private:
  std::unique_ptr<Pending> inner_;
  Collective call_;
  std::shared_ptr<EventLog> log_;
  mutable int asked_ = 0;  // how often is_done() was called
};

class Logged : public Decorated {
 public:
  Logged(std::shared_ptr<Backend> inner, std::shared_ptr<EventLog> log)
      : Decorated(std::move(inner)), log_(std::move(log)) {}

  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    log_->on_issue(call, size());
    return std::make_unique<LoggedPending>(inner().start(call), call, log_);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    return make_logged(std::move(part), log_);
  }
  std::shared_ptr<EventLog> log_;
};

}  // namespace

void EventLog::add(const Event& event) {
  // A context of the scenario's own has a trace of its own.
  lines_.push_back({event.kind, to_string(event), traced_ && &Context::current() == &context_});
}

void EventLog::on_event(const Event& event) {
  // All others have a witness of their own.
  if (event.kind == EventKind::alloc || event.kind == EventKind::free ||
      event.kind == EventKind::step) {
    add(event);
  }
}

void EventLog::on_issue(const Collective& call, int ranks) {
  collectives_.push_back({call.op, call.label, call.dtype, call.numel,
                          received_bytes(call.op, call.numel, size_of(call.dtype), ranks)});
  add(EventKind::issue, call);
}

void EventLog::on_wait(const Collective& call) { add(EventKind::wait, call); }

void EventLog::add(EventKind kind, const Collective& call) {
  add({.kind = kind,
       .unit = call.label.unit,
       .name = std::string(fsdp::name_of(call.op)),
       .phase = call.label.phase});
}

const std::string& EventLog::name_of(const nn::Module& module) {
  static const std::string none;
  const auto known = names_.find({&module, module.path()});
  if (known != names_.end()) return known->second;
  if (module.unit_name().empty()) return none;
  return names_.try_emplace({&module, module.path()}, module.unit_name()).first->second;
}

void EventLog::on_state(nn::Module& module, nn::CallState state) {
  const std::string& name = name_of(module);
  const std::optional<EventKind> kind = kind_of(state);
  if (kind && !name.empty()) add({.kind = *kind, .unit = name, .name = {}});
}

std::string EventLog::contradiction(const Trace& trace) const {
  std::vector<std::string> happened;
  for (const Line& line : lines_) {
    if (line.in_trace) happened.push_back(line.text);
  }
  std::vector<std::string> told;
  for (const Event& event : trace.events()) {
    // What it tells of copies between device and host has no witness.
    if (!event.name.starts_with("copy_to_")) told.push_back(to_string(event));
  }
  const auto [ours, theirs] =
      std::mismatch(told.begin(), told.end(), happened.begin(), happened.end());
  if (ours == told.end() && theirs == happened.end()) return {};
  const auto show = [](const std::vector<std::string>& all, auto from) {
    return from == all.end() ? std::string("nothing more") : "`" + *from + "`";
  };
  return fmt::format(
      "event {} of the trace is {}, but the event that happened there is {}. The library writes "
      "the trace, and it must match what the backend and the modules observed. Leave the trace, "
      "Context::record and the backend alone; issue collectives through ProcessGroup and wait for "
      "them through their Work.",
      ours - told.begin() + 1, show(told, ours), show(happened, theirs));
}

std::shared_ptr<Backend> make_logged(std::shared_ptr<Backend> inner,
                                     std::shared_ptr<EventLog> log) {
  return std::make_shared<Logged>(std::move(inner), std::move(log));
}

}  // namespace fsdp::graded
