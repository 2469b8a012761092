#include "nn/module.h"

#include "autograd/deferred_sum.h"
#include "base/check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace fsdp::nn {

namespace {

std::string join(const std::string& parent, const std::string& name) {
  return parent.empty() || name.empty() ? parent + name : parent + "." + name;
}

}  // namespace

std::vector<Module*> Module::modules() {
  std::vector<Module*> all{this};
  for (const auto& child : children_) {
    const std::vector<Module*> below = child->modules();
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::vector<NamedParameter> Module::named_parameters_with_ties() {
  std::vector<NamedParameter> all;
  for (Module* module : modules()) {
    for (const auto& [name, variable] : module->parameters_) {
      all.push_back({join(module->path_, name), variable, module});
    }
  }
  return all;
}

std::vector<NamedParameter> Module::named_parameters() {
  std::vector<NamedParameter> unique;
  for (NamedParameter& parameter : named_parameters_with_ties()) {
    const bool is_tied = std::any_of(unique.begin(), unique.end(), [&](const NamedParameter& seen) {
      return seen.variable == parameter.variable;
    });
    if (!is_tied) unique.push_back(std::move(parameter));
  }
  return unique;
}

std::vector<std::pair<std::string, Variable>> Module::variables() {
  std::vector<std::pair<std::string, Variable>> pairs;
  for (const NamedParameter& parameter : named_parameters()) {
    pairs.emplace_back(parameter.path, parameter.variable);
  }
  return pairs;
}

std::int64_t Module::parameter_count() {
  std::int64_t count = 0;
  for (const NamedParameter& parameter : named_parameters()) {
    count += parameter.variable.data().numel();
  }
  return count;
}

Module* Module::find(std::string_view path) {
  for (Module* module : modules()) {
    if (module->path_ == path) return module;
  }
  return nullptr;
}

std::vector<Module*> Module::default_units() {
  std::vector<Module*> units;
  for (const auto& child : children_) {
    if (!child->named_parameters().empty()) units.push_back(child.get());
  }
  return units;
}

void Module::convert(DType dtype) {
  for (const NamedParameter& parameter : named_parameters()) {
    Variable variable = parameter.variable;
    variable.convert(dtype);
  }
  for (Module* module : modules()) {
    for (Buffer& buffer : module->buffers_) {
      const AllocationScope scope(MemoryKind::buffer,
                                  std::make_shared<const Owner>(Owner{"", buffer.name}));
      const Tensor converted =
          Tensor::empty(buffer.tensor.shape(), wide_of(dtype), buffer.tensor.device());
      if (buffer.is_initialized) ops::copy(converted, buffer.tensor);
      buffer.tensor = converted;
    }
  }
}

Variable Module::register_parameter(std::string name, Shape shape, const InitSpec& spec,
                                    DType dtype) {
  const AllocationScope scope(MemoryKind::unsharded_param,
                              std::make_shared<const Owner>(Owner{"", name}));
  Variable parameter(Tensor::empty(std::move(shape), dtype), true);
  if (InitObserver* observer = InitObserverScope::current()) {
    observer->on_initialize(parameter, spec);
  } else {
    initialize_now(parameter, spec);
  }
  parameters_.emplace_back(std::move(name), parameter);
  return parameter;
}

void Module::register_shared_parameter(std::string name, Variable variable) {
  FSDP_CHECK(variable.is_defined(), "shared parameter '{}' is undefined", name);
  parameters_.emplace_back(std::move(name), std::move(variable));
}

void Module::register_buffer(std::string name, Shape shape) {
  const auto nbytes = static_cast<std::size_t>(numel_of(shape)) * size_of(DType::float32);
  auto storage = std::make_shared<Storage>(Context::current().device(), nbytes, MemoryKind::buffer,
                                           std::make_shared<const Owner>(Owner{"", name}));
  Tensor tensor = Tensor::view_of(std::move(storage), 0, std::move(shape), DType::float32);
  buffers_.push_back({std::move(name), std::move(tensor), false});
}

const Tensor& Module::buffer(std::string_view name) const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.name != name) continue;
    FSDP_CHECK(buffer.is_initialized,
               "buffer '{}' has not been initialized: after a model built without memory is "
               "materialized, call initialize_buffers() on each of its modules",
               join(path_, buffer.name));
    return buffer.tensor;
  }
  fail("module '{}' has no buffer '{}'", path_, name);
}

void Module::adopt(std::string name, std::shared_ptr<Module> child) {
  FSDP_CHECK(child != nullptr, "child '{}' of module '{}' is null", name, path_);
  FSDP_CHECK(child->parent_ == nullptr,
             "module '{}' already has a parent; it cannot become '{}' too", child->path_,
             join(path_, name));
  child->parent_ = this;
  child->name_ = std::move(name);
  child->set_path(path_);
  children_.push_back(std::move(child));
}

void Module::set_path(const std::string& parent_path) {
  path_ = join(parent_path, name_);
  activation_owner_ = std::make_shared<const Owner>(Owner{"", path_});
  for (const auto& child : children_) child->set_path(path_);
}

// ---- what happens around forward(), and around the backward of what it recorded

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

CallObserverScope::CallObserverScope(CallObserver& observer) : previous_(call_observer) {
  FSDP_CHECK(previous_ == nullptr,
             "this thread's module calls already have an observer, which cannot be replaced");
  call_observer = &observer;
}
CallObserverScope::~CallObserverScope() { call_observer = previous_; }

Variable Module::operator()(const Variable& x) {
  if (!around_call_) return call(x);
  DeferredSum::settle(x.data());  // what is around a call may read its input
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
  DeferredSum::settle(x.data());
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
