/// @file
/// @ingroup optim
/// MasterWeights: whole parameters that a model reads in another format than the optimizer updates.
#pragma once

#include "autograd/variable.h"
#include "optim/mixed_precision.h"
#include "tensor/tensor.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdp::optim {

/// For parameters that are whole on their process. (FSDP's shards are masters themselves.) The data
/// of every parameter becomes a copy in param_dtype; what it was is its master from then on.
/// Without a param_dtype nothing changes.
class MasterWeights {
 public:
  MasterWeights() = default;
  MasterWeights(const std::vector<std::pair<std::string, Variable>>& parameters,
                const MixedPrecision& precision);

  /// What the optimizer updates and a checkpoint holds; the parameter's data if it has no copy.
  const Tensor& of(const Variable& parameter) const;
  /// What its gradients are summed in.
  DType reduce_dtype_of(const Variable& parameter) const {
    return precision_.reduce_dtype_for(of(parameter).dtype());
  }
  /// Casts the masters again. Call it before every forward: as a hook of the whole model.
  void refresh() const;

 private:
  MixedPrecision precision_;
  std::vector<std::pair<Variable, Tensor>> masters_;  // in the order of the parameters
  std::unordered_map<const void*, std::size_t> index_;
};

}  // namespace fsdp::optim
