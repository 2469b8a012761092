#include "optim/master_weights.h"

#include "device/memory_tracker.h"
#include "tensor/cast.h"

#include <memory>

namespace fsdp::optim {

MasterWeights::MasterWeights(const std::vector<std::pair<std::string, Variable>>& parameters,
                             const MixedPrecision& precision)
    : precision_(precision) {
  for (const auto& [path, variable] : parameters) {
    const Tensor master = variable.data();
    const DType dtype = precision_.param_dtype_for(master.dtype());
    if (dtype == master.dtype()) continue;
    const AllocationScope scope(MemoryKind::unsharded_param,
                                std::make_shared<const Owner>(Owner{"", path}));
    Variable parameter = variable;
    parameter.set_data(cast(master, dtype));
    index_.emplace(parameter.id(), masters_.size());
    masters_.emplace_back(std::move(parameter), master);
  }
}

const Tensor& MasterWeights::of(const Variable& parameter) const {
  const auto found = index_.find(parameter.id());
  return found == index_.end() ? parameter.data() : masters_[found->second].second;
}

void MasterWeights::refresh() const {
  for (const auto& [parameter, master] : masters_) ops::copy(parameter.data(), master);
}

}  // namespace fsdp::optim
