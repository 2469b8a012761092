#include "nn/transformer.h"

#include "autograd/functions.h"
#include "base/check.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace fsdp::nn {

namespace {

InitSpec residual_output_init(const TransformerConfig& config) {
  return InitSpec::truncated_normal(config.initializer_range /
                                    std::sqrt(2 * static_cast<double>(config.num_hidden_layers)));
}

}  // namespace

Head::Head(const TransformerConfig& config, Variable tied) : tied_(std::move(tied)) {
  norm_ = register_child("model.norm",
                         std::make_shared<RmsNorm>(config.hidden_size, config.rms_norm_eps));
  if (tied_.is_defined()) {
    register_shared_parameter("lm_head.weight", tied_);
  } else {
    lm_head_ = register_child("lm_head",
                              make_linear(config.hidden_size, config.vocab_size,
                                          InitSpec::truncated_normal(config.initializer_range)));
  }
}

Variable Head::forward(const Variable& x) {
  const Variable normed = (*norm_)(x);
  return tied_.is_defined() ? linear(normed, tied_) : (*lm_head_)(normed);
}

TransformerLM::TransformerLM(const TransformerConfig& config) : config_(config) {
  config.validate();
  rotary_ = std::make_shared<RotaryTables>(config.max_position_embeddings, config.head_dim(),
                                           config.rope_theta, config.rope_scaling);
  const InitSpec init = InitSpec::truncated_normal(config.initializer_range);
  embedding_ = register_child(
      "model.embed_tokens", std::make_shared<Embedding>(config.vocab_size, config.hidden_size, init,
                                                        config.pad_token_id));
  const Attention::Options attention{.width = config.hidden_size,
                                     .heads = config.num_attention_heads,
                                     .kv_heads = config.effective_kv_heads(),
                                     .head_width = config.head_dim(),
                                     .init = init,
                                     .output_init = residual_output_init(config)};
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    blocks_.push_back(register_child(fmt::format("model.layers.{}", i),
                                     std::make_shared<Block>(attention, config.intermediate_size,
                                                             config.rms_norm_eps, rotary_)));
  }
  head_ = register_child(
      "", std::make_shared<Head>(config,
                                 config.tie_word_embeddings ? embedding_->weight() : Variable()));
  register_child("model.rotary_emb", rotary_);
  if (Context::current().device().type != DeviceType::meta) rotary_->initialize_buffers();
}

std::vector<Module*> TransformerLM::default_units() {
  std::vector<Module*> units;
  if (!config_.tie_word_embeddings) units.push_back(embedding_.get());
  for (const auto& block : blocks_) units.push_back(block.get());
  if (!config_.tie_word_embeddings) units.push_back(head_.get());
  return units;
}

std::vector<Attention*> TransformerLM::continuable_attention() {
  std::vector<Attention*> layers;
  for (const auto& block : blocks_) layers.push_back(&block->attention());
  return layers;
}

Variable TransformerLM::forward(const Variable& tokens) {
  const std::int64_t past = blocks_.front()->attention().past_length();
  FSDP_CHECK(
      tokens.shape().size() == 2 && past + tokens.shape()[1] <= config_.max_position_embeddings,
      "the model takes tokens (B, T) with T at most max_position_embeddings = {}, got {}{}",
      config_.max_position_embeddings, to_string(tokens.shape()),
      past == 0 ? "" : fmt::format(" after {} tokens", past));
  Variable x = (*embedding_)(tokens);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)(x);
}

}  // namespace fsdp::nn
