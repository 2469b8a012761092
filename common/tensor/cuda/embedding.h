/// @file
/// @ingroup tensor
/// ops::embedding and its backward on CUDA memory: float, BFloat16, Float16.
#pragma once

#include "device/cuda/stream.h"
#include "tensor/cuda/index_error.h"

#include <cstdint>

namespace fsdp::cuda {

/// out (rows, width) = table (vocabulary, width) at tokens (rows). The first token outside the
/// vocabulary is noted in *error, and its row of `out` is left as it was.
template <class T>
void embedding(Stream stream, T* out, const T* table, const std::int32_t* tokens, std::int64_t rows,
               std::int64_t width, std::int64_t vocabulary, IndexError* error);

/// dtable (vocabulary, width) (+)= scatter of dout (rows, width), in token order: the CPU's bits.
/// The row of `padding` gets nothing. Tokens outside the vocabulary are noted as above, and left
/// out.
template <class T>
void embedding_backward(Stream stream, T* dtable, const T* dout, const std::int32_t* tokens,
                        std::int64_t rows, std::int64_t width, std::int64_t vocabulary,
                        std::int64_t padding, bool add, IndexError* error);

}  // namespace fsdp::cuda
