/// @file
/// @ingroup tensor
/// The operations of optimizer.cpp on CUDA memory, with the CPU's bits: float, BFloat16, Float16.
/// Each is one launch over n elements, which may be a whole flat shard.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/optimizer_steps.h"

#include <cstdint>

namespace fsdp::cuda {

template <class T>
void adamw(Stream stream, T* param, const T* grad, T* exp_avg, T* exp_avg_sq, std::int64_t n,
           const ops::AdamWStep& hyper);

/// `momentum_buffer` may be null when momentum is 0.
template <class T>
void sgd(Stream stream, T* param, const T* grad, T* momentum_buffer, std::int64_t n,
         const ops::SgdStep& hyper);

}  // namespace fsdp::cuda
