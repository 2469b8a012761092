#include "autograd/variable.h"

#include "autograd/backward.h"
#include "autograd/variable_impl.h"
#include "base/check.h"
#include "device/memory_tracker.h"

#include <utility>

namespace fsdp {

namespace {
thread_local bool grad_is_enabled = true;

Variable::Impl& checked(Variable::Impl* impl) {
  FSDP_CHECK(impl != nullptr, "this Variable is undefined; give it data first");
  return *impl;
}
}  // namespace

Variable::Variable(Tensor data, bool requires_grad) : impl_(std::make_shared<Impl>()) {
  FSDP_CHECK(data.is_defined(), "a Variable needs a defined tensor");
  impl_->data = std::move(data);
  set_requires_grad(requires_grad);
}

const Tensor& Variable::data() const { return checked(impl_.get()).data; }
bool Variable::requires_grad() const { return checked(impl_.get()).requires_grad; }
bool Variable::is_leaf() const { return checked(impl_.get()).node == nullptr; }

void Variable::set_requires_grad(bool value) {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(impl.node == nullptr,
             "set_requires_grad() can only be called on a leaf; this variable is the output of {}",
             impl.node->name());
  FSDP_CHECK(!value || is_floating(impl.data.dtype()), "a {} tensor cannot require a gradient",
             name_of(impl.data.dtype()));
  impl.requires_grad = value;
}

const Tensor& Variable::grad() const { return checked(impl_.get()).grad; }

void Variable::set_grad(Tensor grad) {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(!grad.is_defined() || grad.shape() == impl.data.shape(),
             "a gradient of shape {} does not fit data of shape {}", to_string(grad.shape()),
             to_string(impl.data.shape()));
  impl.grad = std::move(grad);
  if (!impl.grad.is_defined()) impl.grad_written = false;
}

void Variable::set_data(Tensor view) {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(view.is_defined(), "set_data() needs a defined tensor");
  const Tensor& old = impl.data;
  const bool is_allowed = view.dtype() == old.dtype() ||
                          (is_leaf() && is_floating(view.dtype()) && is_floating(old.dtype()));
  FSDP_CHECK(view.shape() == old.shape() && is_allowed,
             "set_data() cannot change the shape, nor a dtype except from one floating dtype to "
             "another on a leaf: {} {} cannot become {} {}",
             name_of(old.dtype()), to_string(old.shape()), name_of(view.dtype()),
             to_string(view.shape()));
  FSDP_CHECK(view.device() == old.device() || old.device().type == DeviceType::meta,
             "set_data() cannot change the device: {} cannot become {}", to_string(old.device()),
             to_string(view.device()));
  impl.data = std::move(view);
}

void Variable::convert(DType dtype) {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(impl.node == nullptr, "convert() can only be called on a leaf");
  const Storage& storage = *impl.data.storage();
  const AllocationScope scope(
      storage.kind(), storage.owner() ? std::make_shared<const Owner>(*storage.owner()) : nullptr);
  Tensor converted = Tensor::empty(impl.data.shape(), dtype, impl.data.device());
  ops::copy(converted, impl.data);
  impl.data = std::move(converted);
  impl.grad = {};
}

void Variable::set_grad_buffer(Tensor view) {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(impl.node == nullptr, "set_grad_buffer() can only be called on a leaf");
  FSDP_CHECK(!view.is_defined() ||
                 (view.shape() == impl.data.shape() && view.dtype() == impl.data.dtype()),
             "a gradient buffer of {} {} does not fit data of {} {}", name_of(view.dtype()),
             to_string(view.shape()), name_of(impl.data.dtype()), to_string(impl.data.shape()));
  impl.grad_buffer = std::move(view);
  impl.grad = {};
  impl.grad_written = false;
}

const Tensor& Variable::grad_buffer() const { return checked(impl_.get()).grad_buffer; }
bool Variable::grad_written() const { return checked(impl_.get()).grad_written; }

void Variable::reset_grad_buffer() {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(impl.grad_buffer.is_defined(),
             "reset_grad_buffer() was called without set_grad_buffer()");
  impl.grad = {};
  impl.grad_written = false;
}

int Variable::register_post_accumulate_grad_hook(GradHook hook) {
  Impl& impl = checked(impl_.get());
  FSDP_CHECK(impl.node == nullptr, "post-accumulate hooks can only be registered on a leaf");
  impl.hooks.emplace_back(impl.next_hook, std::move(hook));
  return impl.next_hook++;
}

void Variable::remove_post_accumulate_grad_hook(int handle) {
  std::erase_if(checked(impl_.get()).hooks, [&](const auto& hook) { return hook.first == handle; });
}

void Variable::backward(double gradient) const { fsdp::backward(*this, gradient); }

Variable Variable::detach() const { return Variable(data()); }

GradTarget Variable::Impl::grad_target() {
  if (grad_buffer.is_defined()) {
    const auto write = std::exchange(grad_written, true) ? ops::Write::add : ops::Write::set;
    grad = grad_buffer;
    return {grad_buffer, write};
  }
  if (grad.is_defined()) return {grad, ops::Write::add};
  const Owner* owner = data.storage()->owner();
  const AllocationScope scope(MemoryKind::unsharded_grad,
                              owner ? std::make_shared<const Owner>(*owner) : nullptr);
  grad = Tensor::empty(data.shape(), data.dtype(), data.device());
  return {grad, ops::Write::set};
}

bool grad_enabled() { return grad_is_enabled; }

GradScope::GradScope(bool is_enabled) : previous_(std::exchange(grad_is_enabled, is_enabled)) {}
GradScope::~GradScope() { grad_is_enabled = previous_; }

}  // namespace fsdp
