#include "optim/master_weights.h"

#include "base/check.h"
#include "device/context.h"
#include "device/memory_tracker.h"
#include "tensor/cast.h"

#include <memory>

namespace fsdp::optim {

namespace {

/// Flat, on `device`, and without the bytes of the rest.
Tensor part_of(const Tensor& whole, const MasterWeights::Part& part, Device device) {
  Tensor flat = whole.view({whole.numel()});
  if (part.numel == whole.numel() && device == whole.device()) return flat;
  Tensor copy = Tensor::empty({part.numel}, whole.dtype(), device);
  if (part.numel > 0) ops::copy(copy, flat.narrow(0, part.begin, part.numel));
  return copy;
}

}  // namespace

MasterWeights::MasterWeights(const std::vector<std::pair<std::string, Variable>>& parameters,
                             const MixedPrecision& precision, const std::vector<Part>& parts,
                             const Make& make, const Offload& offload)
    : precision_(precision), offload_(offload), are_in_parts_(!parts.empty()) {
  offload_.validate_owned();
  FSDP_CHECK(are_in_parts_ || parameters.empty() || !offload_.is_on(),
             "offload of the optimizer is for masters in parts: without, every rank steps all of "
             "them; use ZeRO-1 or ZeRO-2, or fully_shard()");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Variable parameter = parameters[i].second;
    const AllocationScope scope(MemoryKind::unsharded_param,
                                std::make_shared<const Owner>(Owner{"", parameters[i].first}));
    if (make) make(parameter);
    const Tensor master = parameter.data();
    const DType dtype = precision_.param_dtype_for(master.dtype());
    const bool is_copied = dtype != master.dtype();
    if (!is_copied && !(offload_.optimizer && parameter.requires_grad())) continue;
    if (is_copied) parameter.set_data(cast(master, dtype));
    index_.emplace(parameter.id(), masters_.size());
    Master made{std::move(parameter), master};
    if (are_in_parts_) {
      made.values = part_of(master, parts.at(i),
                            offload_.optimizer ? Context::current().host() : master.device());
      made.begin = parts[i].begin;
    }
    masters_.push_back(std::move(made));
  }
}

const Tensor& MasterWeights::of(const Variable& parameter) const {
  const auto found = index_.find(parameter.id());
  return found == index_.end() ? parameter.data() : masters_[found->second].values;
}

std::int64_t MasterWeights::begin_of(const Variable& parameter) const {
  const auto found = index_.find(parameter.id());
  return found == index_.end() ? 0 : masters_[found->second].begin;
}

void MasterWeights::refresh() const {
  if (are_in_parts_) return;
  for (const Master& each : masters_) ops::copy(each.parameter.data(), each.values);
}

}  // namespace fsdp::optim
