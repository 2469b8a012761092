#include "tensor/host_copy.h"

#include "base/check.h"
#include "device/context.h"
#include "tensor/cast.h"

#include <utility>

namespace fsdp {

HostCopy start_host_copy(const Tensor& out, const Tensor& in, const Label& label) {
  FSDP_CHECK(out.is_defined() && in.is_defined(), "copy: undefined tensor");
  FSDP_CHECK(out.shape() == in.shape(), "copy: shapes {} and {} differ", to_string(out.shape()),
             to_string(in.shape()));
  FSDP_CHECK(
      out.device().type == in.device().type && out.device().is_host() != in.device().is_host(),
      "copy: one tensor is on {}, the other on {}", to_string(out.device()),
      to_string(in.device()));
  HostCopy copy;
  for (const Tensor* tensor : {&out, &in}) copy.leases_.emplace_back(tensor->storage());
  copy.is_pending_ = true;
  Event event{.kind = EventKind::issue,
              .unit = label.unit,
              .name = out.device().is_host() ? "copy_to_host" : "copy_to_device",
              .phase = label.phase};
  event.nbytes = static_cast<std::int64_t>(in.nbytes());
  copy.waited_ = event;
  copy.waited_.kind = EventKind::wait;

  Context& context = Context::current();
  context.record(std::move(event));
  if (out.device().has_data()) ops::copy_elements(out, in);
  if (VirtualClock* clock = context.clock()) {
    copy.end_ = clock->start_copy(static_cast<std::int64_t>(in.nbytes()));
    out.storage()->set_ready(copy.end_);
  }
  return copy;
}

void HostCopy::wait() {
  if (!std::exchange(is_pending_, false)) return;
  leases_.clear();
  Context& context = Context::current();
  const std::int64_t begin = context.now();
  if (VirtualClock* clock = context.clock()) clock->wait_until(end_);
  waited_.duration = context.now() - begin;
  context.record(std::move(waited_));
}

Tensor gather_input(const Tensor& shard, const Tensor& full, Phase phase) {
  if (shard.device() == full.device()) return cast(shard, full.dtype());
  const std::shared_ptr<const Owner> owner = AllocationScope::owner();
  Tensor copy = Tensor::empty(shard.shape(), full.dtype(), full.device());
  // Not waited for: the gather begins after it.
  const HostCopy under_way =
      start_host_copy(copy, shard, {owner == nullptr ? std::string() : owner->unit, phase});
  return copy;
}

}  // namespace fsdp
