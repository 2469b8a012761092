#include "tensor/host_copy.h"

#include "base/check.h"
#include "device/context.h"
#include "tensor/cast.h"

#include <utility>

namespace fsdp {

namespace {

/// True if a is memory of a host, and b of a device beside it.
bool are_beside(Device a, Device b) {
  if (!a.is_host() || b.is_host()) return false;
  return a.type == b.type || (a.type == DeviceType::cpu && b.type == DeviceType::cuda);
}

}  // namespace

HostCopy start_host_copy(const Tensor& out, const Tensor& in, const Label& label) {
  FSDP_CHECK(out.is_defined() && in.is_defined(), "copy: undefined tensor");
  FSDP_CHECK(out.shape() == in.shape(), "copy: shapes {} and {} differ", to_string(out.shape()),
             to_string(in.shape()));
  const bool is_to_host = are_beside(out.device(), in.device());
  FSDP_CHECK(is_to_host || are_beside(in.device(), out.device()),
             "copy: one tensor is on {}, the other on {}", to_string(out.device()),
             to_string(in.device()));
  HostCopy copy;
  for (const Tensor* tensor : {&out, &in}) copy.leases_.emplace_back(tensor->storage());
  copy.is_pending_ = true;
  Event event{.kind = EventKind::issue,
              .unit = label.unit,
              .name = is_to_host ? "copy_to_host" : "copy_to_device",
              .phase = label.phase};
  event.nbytes = static_cast<std::int64_t>(in.nbytes());
  copy.waited_ = event;
  copy.waited_.kind = EventKind::wait;

  Context& context = Context::current();
  context.record(std::move(event));
  if ((is_to_host ? in : out).device().type == DeviceType::cuda) {
    copy.start_on_cuda(out, in);
  } else if (out.device().has_data()) {
    ops::copy_elements(out, in);
  }
  if (VirtualClock* clock = context.clock()) {
    copy.end_ = clock->start_copy(static_cast<std::int64_t>(in.nbytes()));
    out.storage()->set_ready(copy.end_);
  }
  return copy;
}

// The copy begins when the compute stream has done what it was given so far: `in` is computed then,
// and whatever used the bytes of `out` before has ended.
void HostCopy::start_on_cuda(const Tensor& out, const Tensor& in) {
  FSDP_CHECK(out.is_contiguous() && in.is_contiguous(),
             "copy: tensors of shape {} must be contiguous to be copied between {} and {}",
             to_string(out.shape()), to_string(in.device()), to_string(out.device()));
  out_ = out;
  if (in.dtype() != out.dtype()) {
    const AllocationScope as_temp(MemoryKind::temp);
    staged_ = Tensor::empty(out.shape(), in.dtype(), out.device());
  }
  const Tensor& to = staged_.is_defined() ? staged_ : out;
  RankDevice& device = Context::current().rank_device();
  device.make_wait(device.copies(), *device.record(device.compute()));
  device.copy(device.copies(), to.raw(), in.raw(), in.nbytes());
  copied_ = device.record(device.copies());
}

void HostCopy::finish_on_cuda() {
  RankDevice& device = Context::current().rank_device();
  if (out_.device().host_can_read()) {
    device.wait_on_host(*copied_);
    if (staged_.is_defined()) ops::copy_elements(out_, staged_);
  } else {
    device.make_wait(device.compute(), *copied_);
    if (staged_.is_defined()) ops::copy(out_, staged_);
  }
  copied_ = nullptr;
  out_ = staged_ = {};
}

void HostCopy::wait() {
  if (!std::exchange(is_pending_, false)) return;
  if (copied_ != nullptr) finish_on_cuda();
  leases_.clear();
  Context& context = Context::current();
  const std::int64_t begin = context.now();
  if (VirtualClock* clock = context.clock()) clock->wait_until(end_);
  waited_.duration = context.now() - begin;
  context.record(std::move(waited_));
}

// A card's collective begins after its compute stream, which is made to wait. Elsewhere, `out` says
// when it is ready.
void copy_for_collective(const Tensor& out, const Tensor& in, const Label& label) {
  HostCopy under_way = start_host_copy(out, in, label);
  if (out.device().type == DeviceType::cuda) under_way.wait();
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.device().host_can_read()) return tensor;
  FSDP_CHECK(tensor.is_contiguous(), "a tensor of shape {} must be contiguous to be copied from {}",
             to_string(tensor.shape()), to_string(tensor.device()));
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), kCpu);
  Context::current().rank_device().read(copy.raw(), tensor.raw(), tensor.nbytes());
  return copy;
}

Tensor gather_input(const Tensor& shard, const Tensor& full, Phase phase) {
  if (shard.device() == full.device()) return cast(shard, full.dtype());
  const std::shared_ptr<const Owner> owner = AllocationScope::owner();
  Tensor copy = Tensor::empty(shard.shape(), full.dtype(), full.device());
  copy_for_collective(copy, shard, {owner == nullptr ? std::string() : owner->unit, phase});
  return copy;
}

}  // namespace fsdp
