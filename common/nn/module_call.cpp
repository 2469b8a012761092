// What happens around Module::forward(), and around the backward of what it recorded.
#include "base/check.h"
#include "nn/module.h"

#include <array>
#include <optional>
#include <utility>

namespace fsdp::nn {

namespace {

thread_local CallObserver* call_observer = nullptr;

/// The module is active for the memory tracker while this lives.
class ActiveModule {
 public:
  explicit ActiveModule(std::string path)
      : tracker_(Context::current().tracker()), path_(std::move(path)) {
    tracker_.enter_module(path_);
  }
  ~ActiveModule() { tracker_.leave_module(path_); }
  ActiveModule(const ActiveModule&) = delete;
  ActiveModule& operator=(const ActiveModule&) = delete;

 private:
  MemoryTracker& tracker_;
  std::string path_;
};

}  // namespace

std::string_view name_of(CallState state) {
  static constexpr std::array<std::string_view, kCallStates> kNames{
      "BEF_PRE_FW", "AFT_PRE_FW", "BEF_POST_FW", "AFT_POST_FW",
      "BEF_PRE_BW", "AFT_PRE_BW", "BEF_POST_BW", "AFT_POST_BW"};
  return kNames.at(static_cast<std::size_t>(state));
}

CallObserverScope::CallObserverScope(CallObserver& observer) : previous_(call_observer) {
  FSDP_CHECK(previous_ == nullptr,
             "this thread's module calls already have an observer, which cannot be replaced");
  call_observer = &observer;
}
CallObserverScope::~CallObserverScope() { call_observer = previous_; }

Variable Module::operator()(const Variable& x) {
  if (!around_call_) return call(x);
  return around_call_(*this, x, [this](const Variable& input) { return call(input); });
}

Variable Module::call(const Variable& x) {
  const ActiveModule active(path_);
  call_hooks(CallState::before_pre_forward, forward_pre_hooks_, CallState::after_pre_forward);
  Variable y;
  {
    std::optional<CallFrameScope> frame;
    if (grad_enabled()) frame.emplace(make_frame());
    const AllocationScope owner(AllocationScope::kind(), activation_owner_);
    record(EventKind::forward_begin);
    y = around_forward_ ? wrapped_forward(x) : forward(x);
    record(EventKind::forward_end);
  }
  call_hooks(CallState::before_post_forward, forward_hooks_, CallState::after_post_forward);
  return y;
}

// A wrapper may call forward() again when nothing of this call is open any more. What it records
// then still belongs to this module.
Variable Module::wrapped_forward(const Variable& x) {
  return around_forward_(*this, x, [this](const Variable& input) {
    std::optional<CallFrameScope> frame;
    if (grad_enabled()) {
      auto owned = std::make_shared<CallFrame>();
      owned->owner = activation_owner_;
      frame.emplace(std::move(owned));
    }
    const AllocationScope owner(AllocationScope::kind(), activation_owner_);
    return forward(input);
  });
}

void Module::wrap_forward(CallWrapper wrapper) {
  FSDP_CHECK(!wrapper || !around_forward_,
             "something is around the forward of module '{}' already: wrap it once", path_);
  around_forward_ = std::move(wrapper);
}

void Module::wrap_call(CallWrapper wrapper) {
  FSDP_CHECK(!wrapper || !around_call_,
             "something is around the calls of module '{}' already: wrap it once", path_);
  around_call_ = std::move(wrapper);
}

std::shared_ptr<CallFrame> Module::make_frame() {
  auto frame = std::make_shared<CallFrame>();
  frame->owner = activation_owner_;
  // Owned by the frame, which the tape lets go of: so the module is left even if backward throws.
  auto active = std::make_shared<std::optional<ActiveModule>>();
  frame->before_first = [this, active] {
    active->emplace(path_);
    call_hooks(CallState::before_pre_backward, backward_pre_hooks_, CallState::after_pre_backward);
    record(EventKind::backward_begin);
  };
  frame->after_last = [this, active] {
    record(EventKind::backward_end);
    call_hooks(CallState::before_post_backward, backward_hooks_, CallState::after_post_backward);
    active->reset();
  };
  return frame;
}

void Module::call_hooks(CallState before, const std::vector<Hook>& hooks, CallState after) {
  if (call_observer) call_observer->on_state(*this, before);
  if (!hooks.empty()) {
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): a hook may remove itself
    const std::vector<Hook> calls = hooks;
    for (const Hook& hook : calls) hook.call(*this);
  }
  if (call_observer) call_observer->on_state(*this, after);
}

void Module::record(EventKind kind) {
  if (!unit_name_.empty())
    Context::current().record({.kind = kind, .unit = unit_name_, .name = {}});
}

int Module::add_hook(std::vector<Hook>& hooks, ModuleHook hook) {
  hooks.push_back({next_handle_, std::move(hook)});
  return next_handle_++;
}

int Module::register_forward_pre_hook(ModuleHook hook) {
  return add_hook(forward_pre_hooks_, std::move(hook));
}
int Module::register_forward_hook(ModuleHook hook) {
  return add_hook(forward_hooks_, std::move(hook));
}
int Module::register_full_backward_pre_hook(ModuleHook hook) {
  return add_hook(backward_pre_hooks_, std::move(hook));
}
int Module::register_full_backward_hook(ModuleHook hook) {
  return add_hook(backward_hooks_, std::move(hook));
}

void Module::remove_hook(int handle) {
  for (auto* hooks :
       {&forward_pre_hooks_, &forward_hooks_, &backward_pre_hooks_, &backward_hooks_}) {
    std::erase_if(*hooks, [handle](const Hook& hook) { return hook.handle == handle; });
  }
}

}  // namespace fsdp::nn
