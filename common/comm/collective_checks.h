/// @file
/// @ingroup comm
/// The checks of ProcessGroup before a collective leaves this rank. They use the arguments alone,
/// so every rank gets the same result for the same call.
#pragma once

#include "comm/process_group.h"

#include <string_view>

namespace fsdp {

/// `tensor` is defined, contiguous, and on cpu, cuda or fake, not in the memory of the host beside a
/// device.
void check_operand(CollectiveOp op, std::string_view name, const Tensor& tensor);

/// `in` and `out` have one dtype and one device.
void check_alike(CollectiveOp op, const Tensor& out, const Tensor& in);

/// `reduce` is defined for `dtype`: sums need float32, float64, int32 or int64; averages a float.
void check_reducible(CollectiveOp op, ReduceOp reduce, DType dtype);

/// `root` is a rank of a group of `size`.
void check_root(CollectiveOp op, int root, int size);

/// `small` and `large` share no byte, except that `small` may be exactly the elements of `large`
/// from `begin` on (in place). Otherwise one rank overwrites what another has yet to read.
void check_overlap(CollectiveOp op, const Tensor& large, const Tensor& small, std::int64_t begin);

}  // namespace fsdp
