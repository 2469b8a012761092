/// @file
/// @ingroup autograd
/// Views and destinations that the functions share; for the files of this folder.
#pragma once

#include "autograd/node.h"
#include "base/check.h"
#include "tensor/tensor.h"

namespace fsdp {

/// (…, N) seen as (R, N).
inline Tensor as_rows(const Tensor& tensor) {
  FSDP_CHECK(tensor.dims() >= 1, "expected at least one dimension, got a scalar");
  const std::int64_t columns = tensor.size(-1);
  return tensor.view({columns == 0 ? 0 : tensor.numel() / columns, columns});
}

/// The shape of `tensor` with `last` in place of its last extent.
inline Shape with_last(const Tensor& tensor, std::int64_t last) {
  Shape shape = tensor.shape();
  shape.back() = last;
  return shape;
}

inline Tensor empty_like(const Tensor& tensor) {
  return Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
}

/// Whether a result may be written into the bytes of `x`, which a function took by value: nothing
/// else holds them, and no leaf's gradient is asked for.
inline bool is_given_up(const Variable& x) {
  return x.use_count() == 1 && is_sole_holder(x.data()) && !(x.is_leaf() && x.requires_grad());
}

/// A place for a gradient: `saved` itself if nothing else holds it (its bytes then count as TEMP),
/// else fresh bytes.
inline Tensor over_or_fresh(const Tensor& saved) {
  if (!is_sole_holder(saved)) return empty_like(saved);
  saved.storage()->recategorize(MemoryKind::temp);
  return saved;
}

}  // namespace fsdp
