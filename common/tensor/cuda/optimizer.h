/// @file
/// @ingroup tensor
/// The operation of optimizer.cpp on CUDA memory, with the CPU's bits: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/optimizers.h"

#include <cstdint>

namespace fsdp::cuda {

/// One launch over n elements, which may be a whole flat shard. State that an optimizer does not
/// have is null.
template <class T>
void update(const char* name, Stream stream, T* param, const T* grad, T* first, T* second,
            std::int64_t n, const ops::Update& how);

}  // namespace fsdp::cuda
