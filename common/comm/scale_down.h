/// @file
/// @ingroup comm
/// The last step of an average.
#pragma once

#include "tensor/tensor.h"

#include <cstddef>
#include <cstdint>

namespace fsdp {

/// values[i] *= 1 / world_size, for i in [0, numel). Integers stay as they are.
void scale_down(std::byte* values, std::int64_t numel, DType dtype, int world_size);

}  // namespace fsdp
