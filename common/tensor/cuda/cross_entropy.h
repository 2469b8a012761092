/// @file
/// @ingroup tensor
/// ops::cross_entropy and its backward on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/cuda/index_error.h"

#include <cstdint>

namespace fsdp::cuda {

/// loss (1), lse (rows), logits (rows, width), targets (rows) with rows > 0. The first target that
/// is neither in [0, width) nor ops::kIgnoredTarget is noted in *error, and does not count.
template <class T>
void cross_entropy(Stream stream, float* loss, float* lse, const T* logits,
                   const std::int32_t* targets, std::int64_t rows, std::int64_t width,
                   IndexError* error);

/// dlogits may be logits (in place). `factor` is scratch: one float, dloss / (rows that count).
/// The row of a wrong target, noted in *error, gets zeros.
template <class T>
void cross_entropy_backward(Stream stream, T* dlogits, float* factor, const float* dloss,
                            const T* logits, const std::int32_t* targets, const float* lse,
                            std::int64_t rows, std::int64_t width, IndexError* error);

}  // namespace fsdp::cuda
