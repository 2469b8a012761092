/// @file
/// @ingroup optim
/// The formats in which a model computes and its gradients are summed.
#pragma once

#include "base/types.h"

#include <optional>

namespace fsdp::optim {

/// A recipe with the names and defaults of PyTorch's MixedPrecisionPolicy. The parameters that the
/// optimizer updates keep their dtype (float32): they are the masters.
///
///     master --cast--> what the model reads    activations and gradients have its dtype
///     gradient of a micro-batch --cast--> leaf of the canonical tree, whose sums have that dtype
///     sum of all J micro-batches --cast--> times 1/J, clipped, applied in the dtype of the master
///
/// A single process, DDP and FSDP follow the same recipe. So they give the same bits under every
/// policy.
struct MixedPrecision {
  std::optional<DType> param_dtype;   ///< of what the model reads; none: that of the masters
  std::optional<DType> reduce_dtype;  ///< of sums of gradients; none: param_dtype

  /// What the model reads, and what gradients are summed in, for a parameter of this dtype.
  DType param_dtype_for(DType master) const { return param_dtype.value_or(master); }
  DType reduce_dtype_for(DType master) const {
    return reduce_dtype.value_or(param_dtype_for(master));
  }
};

}  // namespace fsdp::optim
