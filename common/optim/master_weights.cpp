#include "optim/master_weights.h"

#include "device/memory_tracker.h"
#include "tensor/cast.h"

#include <memory>

namespace fsdp::optim {

namespace {

/// Flat, and without the bytes of the rest.
Tensor part_of(const Tensor& whole, const MasterWeights::Part& part) {
  Tensor flat = whole.view({whole.numel()});
  if (part.numel == whole.numel()) return flat;
  Tensor copy = Tensor::empty({part.numel}, whole.dtype(), whole.device());
  ops::copy(copy, flat.narrow(0, part.begin, part.numel));
  return copy;
}

}  // namespace

MasterWeights::MasterWeights(const std::vector<std::pair<std::string, Variable>>& parameters,
                             const MixedPrecision& precision, const std::vector<Part>& parts,
                             const Make& make)
    : precision_(precision), are_in_parts_(!parts.empty()) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Variable parameter = parameters[i].second;
    const AllocationScope scope(MemoryKind::unsharded_param,
                                std::make_shared<const Owner>(Owner{"", parameters[i].first}));
    if (make) make(parameter);
    const Tensor master = parameter.data();
    const DType dtype = precision_.param_dtype_for(master.dtype());
    if (dtype == master.dtype()) continue;
    parameter.set_data(cast(master, dtype));
    index_.emplace(parameter.id(), masters_.size());
    Master made{std::move(parameter), master};
    if (are_in_parts_) {
      made.values = part_of(master, parts.at(i));
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
