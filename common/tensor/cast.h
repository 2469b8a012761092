/// @file
/// @ingroup tensor
/// Tensors in another format.
#pragma once

#include "tensor/ops.h"

namespace fsdp {

/// `tensor` itself if it has this dtype, else a copy of it, each element rounded once.
/// AllocationScope sets the kind of the copy.
inline Tensor cast(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor copy = Tensor::empty(tensor.shape(), dtype, tensor.device());
  ops::copy(copy, tensor);
  return copy;
}

}  // namespace fsdp
