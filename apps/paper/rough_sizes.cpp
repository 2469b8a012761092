#include "paper/rough_sizes.h"

namespace fsdp::paper {

RoughSizes rough_sizes(const nn::TransformerConfig& model, std::int64_t batch, std::int64_t length,
                       std::int64_t lora_rank) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double d = real(model.hidden_size), f = real(model.intermediate_size);
  const double layers = real(model.num_hidden_layers), heads = real(model.num_attention_heads);
  const double q_width = heads * real(model.head_dim());
  const double kv_width = real(model.effective_kv_heads()) * real(model.head_dim());
  RoughSizes sizes;
  sizes.table = real(model.vocab_size) * d;
  sizes.block = 2 * d * q_width + 2 * d * kv_width + 3 * d * f + 2 * d;
  sizes.parameters = (model.tie_word_embeddings ? 1 : 2) * sizes.table + layers * sizes.block + d;
  sizes.tokens = real(batch) * real(length);
  sizes.in_block = 4 * d + 2 * q_width + 2 * kv_width + 3 * f + heads + 2 * real(lora_rank) + 2;
  sizes.behind = real(model.vocab_size) + 1;
  sizes.attention = 4 * sizes.tokens * real(length) * q_width * layers;
  return sizes;
}

}  // namespace fsdp::paper
