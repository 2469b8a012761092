/// @file
/// @ingroup paper
/// The segments of torchtitan's and Hugging Face's Llama, as PyTorch's autograd keeps them.
#pragma once

#include "nn/transformer_config.h"
#include "paper/memory_options.h"
#include "paper/segments.h"

#include <cstdint>

namespace fsdp::paper {

/// An element has the bytes e of the format that the model computes in. With R = B·T rows, and per
/// row x = e·d, q = e·H·D, kv = e·G·D, f = e·F, a block that is not checkpointed keeps
///
///     4x + 4q + 4f + 4·H + 8        input, norm, middle, norm | queries, keys and values (of all
///                                   heads), attention | gate, its SiLU, up, hidden
///     8x + 4q + 4f + 4·H + 8        RMSNorm written out in float32 (e = 2)
///     4x + 4q + 3f + 4·H + 8        compiled: SiLU is computed again
///     8x + 2q + 2kv + 4f + 4·H + 8  Hugging Face's: grouped keys and values as they are (e = 2)
///     8x + 4q + 4f + 6·H·T + 8      the same with attention "eager", by products
///
/// In float8, the same: an operand's copy in one byte lives as long as its product.
///
/// Beside that, 24 bytes of attention's random state are kept; the loss keeps 4·V of logits in
/// float32, and tokens and labels are int64. Derived from torchtitan's and transformers' source and
/// PyTorch's derivatives.yaml; tests/estimate compares it with FSDPMemTracker's counts, and with
/// what PyTorch saves.
TapedModel eager_model(const nn::TransformerConfig& config, const MemoryOptions& options,
                       std::int64_t length);

}  // namespace fsdp::paper
