/// @file
/// @ingroup nn
/// Text generation.
#pragma once

#include "base/philox.h"
#include "nn/module.h"

#include <cstdint>
#include <vector>

namespace fsdp::nn {

struct SamplingOptions {
  double temperature = 1.0;  ///< 0 = always the likeliest token
  int top_k = 0;             ///< keep the k likeliest; 0 = all
};

/// Continues `prompt` by `count` tokens, without a tape. `model` maps (1, T') tokens to (1, T', V)
/// logits; the last `max_sequence` tokens are its context. Draws one word per token. With a sharded
/// model, every rank calls it and gets the same tokens.
///
/// A TransformerLM keeps its keys and values meanwhile (key_value_cache.h): each forward after the
/// first takes one token. Once the text is longer than the context, every token changes all
/// positions, and so needs a forward of the whole context. Other models take the whole context
/// always. The tokens are the same either way.
std::vector<std::int32_t> generate(Module& model, std::vector<std::int32_t> prompt, int count,
                                   std::int64_t max_sequence, const SamplingOptions& options,
                                   Generator& generator);

}  // namespace fsdp::nn
