/// @file
/// @ingroup optim
/// MasterWeights: parameters that a model reads in another format than the optimizer updates.
#pragma once

#include "autograd/variable.h"
#include "optim/mixed_precision.h"
#include "optim/offload.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdp::optim {

/// For parameters that the model reads whole on their process. (FSDP's shards are masters
/// themselves.) The data of every parameter becomes a copy in param_dtype; what it was is its
/// master from then on. Without a param_dtype nothing changes, unless the optimizer is offloaded:
/// then all masters are on the host, and a trained parameter has one in any format.
class MasterWeights {
 public:
  /// Elements of a parameter, flattened.
  struct Part {
    std::int64_t begin = 0;
    std::int64_t numel = 0;
  };
  using Make = std::function<void(Variable& parameter)>;

  MasterWeights() = default;
  /// @param parts  what to hold of the master of each parameter; empty: all of it. With parts,
  ///               other processes hold the rest. So ZeroGradients, whose ranks own the parts,
  ///               updates the copies, and refresh() does not.
  /// @param make  called with each parameter in turn before its data is read. If the data is made
  ///              there, no two parameters are whole in the masters' format at once.
  /// @param offload  where parts are, and for ZeroGradients where their gradients are summed
  /// @throws Error if parts cannot be offloaded so, or masters are no parts
  MasterWeights(const std::vector<std::pair<std::string, Variable>>& parameters,
                const MixedPrecision& precision, const std::vector<Part>& parts = {},
                const Make& make = {}, const Offload& offload = {});

  const Offload& offload() const { return offload_; }
  bool are_in_parts() const { return are_in_parts_; }
  /// Whether the model reads a copy.
  bool has(const Variable& parameter) const { return index_.contains(parameter.id()); }
  /// What the optimizer updates and a checkpoint holds: the master, or its part, which is flat. If
  /// the parameter has no copy, it is its data.
  const Tensor& of(const Variable& parameter) const;
  /// The place in the parameter of the first element of of().
  std::int64_t begin_of(const Variable& parameter) const;
  /// What its gradients are summed in.
  DType reduce_dtype_of(const Variable& parameter) const {
    return precision_.reduce_dtype_for(of(parameter).dtype());
  }
  /// Casts the masters again, unless they are parts. Call it before every forward: as a hook of the
  /// whole model.
  void refresh() const;

 private:
  struct Master {
    Variable parameter;
    Tensor values;
    std::int64_t begin = 0;
  };
  MixedPrecision precision_;
  Offload offload_;
  bool are_in_parts_ = false;
  std::vector<Master> masters_;  // in the order of the parameters
  std::unordered_map<const void*, std::size_t> index_;
};

}  // namespace fsdp::optim
