/// @file
/// @ingroup nn
/// TransformerLM: the Llama architecture, with the parameter paths of Hugging Face's
/// LlamaForCausalLM.
#pragma once

#include "nn/layers.h"
#include "nn/transformer_config.h"

#include <string>

namespace fsdp::nn {

/// The last step of the model: model.norm, then lm_head.
class Head : public Module {
 public:
  /// `tied`: the embedding's weight, or undefined if the head has its own.
  Head(const TransformerConfig& config, Variable tied);

 protected:
  Variable forward(const Variable& x) override;

 private:
  std::shared_ptr<RmsNorm> norm_;
  Variable tied_;
  std::shared_ptr<Linear> lm_head_;  // null when tied
};

/// tokens (B, T) int32 -> logits (B, T, V).
///
///   child "model.embed_tokens"  Embedding
///   child "model.layers.i"      Block        i in [0, L)
///   child ""                    Head         with children "model.norm", "lm_head"
///   child "model.rotary_emb"    RotaryTables (no parameters)
class TransformerLM : public Module {
 public:
  explicit TransformerLM(const TransformerConfig& config);
  const TransformerConfig& config() const { return config_; }
  Module& embedding() { return *embedding_; }
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }
  Module& head() { return *head_; }
  /// Embedding, blocks, head. With tied embeddings the blocks only: the root has the others, since
  /// a parameter belongs to one unit.
  std::vector<Module*> default_units() override;
  std::vector<Attention*> continuable_attention() override;
  const TransformerConfig* llama_config() const override { return &config_; }

 protected:
  Variable forward(const Variable& tokens) override;

 private:
  TransformerConfig config_;
  std::shared_ptr<RotaryTables> rotary_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Head> head_;
};

}  // namespace fsdp::nn
