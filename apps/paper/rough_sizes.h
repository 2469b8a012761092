/// @file
/// @ingroup paper
/// Sizes as real numbers, for what may be too large to be counted.
#pragma once

#include "nn/transformer_config.h"

#include <cstdint>

namespace fsdp::paper {

/// Elements of a model, and of what a micro-batch keeps for backward. The letters are those of
/// segment_memory.h.
struct RoughSizes {
  double table = 0;       ///< the embedding; an untied head has as many
  double block = 0;       ///< one block
  double parameters = 0;  ///< the model, without adapters
  double tokens = 0;      ///< of the micro-batch
  double in_block = 0;    ///< kept per token between a block's input and output
  double behind = 0;      ///< kept per token behind the last block
  double attention = 0;   ///< flop of all scores and their products, forward
};

/// Of `batch` sequences of `length` tokens. Nothing overflows, however large the model.
RoughSizes rough_sizes(const nn::TransformerConfig& model, std::int64_t batch, std::int64_t length,
                       std::int64_t lora_rank);

}  // namespace fsdp::paper
