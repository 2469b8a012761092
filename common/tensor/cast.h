/// @file
/// @ingroup tensor
/// Tensors in another format, or in another memory.
#pragma once

#include "base/trace.h"
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

/// cast(); if that makes a copy, the bytes of `tensor` are freed.
inline Tensor recast(const Tensor& tensor, DType dtype) {
  Tensor result = cast(tensor, dtype);
  if (tensor.dtype() != dtype) tensor.storage()->free();
  return result;
}

/// `tensor` itself if code of the host can read it, else a copy on the cpu, which is contiguous, as
/// `tensor` must be. The host waits for it. AllocationScope sets the kind of the copy.
Tensor on_host(const Tensor& tensor);

/// What an all-gather into `full` reads: `shard` in the dtype and on the device of `full`. That is
/// `shard` itself, or a copy, whose kind and owner AllocationScope sets. Offloaded, the shard is in
/// host memory: then its copy to the device is under way, and the gather begins when it has ended.
/// Nothing but a collective may use it before. `phase` is for the trace.
Tensor gather_input(const Tensor& shard, const Tensor& full, Phase phase);

}  // namespace fsdp
