/// @file
/// @ingroup tensor
/// The operations of optimizer_adaptive.cpp on CUDA memory, with the CPU's bits: float, BFloat16,
/// Float16. Each is one launch over n elements, which may be a whole flat shard.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/optimizer_steps.h"

#include <cstdint>

namespace fsdp::cuda {

template <class T>
void adamax(Stream stream, T* param, const T* grad, T* exp_avg, T* exp_inf, std::int64_t n,
            const ops::AdamaxStep& hyper);
template <class T>
void adagrad(Stream stream, T* param, const T* grad, T* sum, std::int64_t n,
             const ops::AdagradStep& hyper);
template <class T>
void adadelta(Stream stream, T* param, const T* grad, T* square_avg, T* acc_delta, std::int64_t n,
              const ops::AdadeltaStep& hyper);

}  // namespace fsdp::cuda
