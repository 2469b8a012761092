/// @file
/// @ingroup tensor
/// ops::cross_entropy on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/cuda/index_error.h"

#include <cstdint>

namespace fsdp::cuda {

/// The rows that count, and d(loss) / that number.
struct CountedRows {
  float factor;
  std::int32_t count;
};

/// loss (1), losses (rows), logits (rows, width), targets (rows) with rows > 0. dlogits may be
/// null, or logits (in place). `counted` is scratch. The first target that is neither in [0, width)
/// nor ops::kIgnoredTarget is noted in *error. It does not count; its row of dlogits gets zeros.
template <class T>
void cross_entropy(Stream stream, float* loss, float* losses, T* dlogits, float dloss,
                   CountedRows* counted, const T* logits, const std::int32_t* targets,
                   std::int64_t rows, std::int64_t width, IndexError* error);

}  // namespace fsdp::cuda
