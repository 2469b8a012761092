#include "paper/segments.h"

#include "paper/eager_segments.h"
#include "paper/formats.h"
#include "paper/paper_tape.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

namespace fsdp::paper {

namespace {

/// The model, on paper.
class PaperModel {
 public:
  PaperModel(const nn::TransformerConfig& config, const MemoryOptions& options)
      : config_(config),
        options_(options),
        element_(static_cast<std::int64_t>(
            size_of(options.recipe.precision.param_dtype_for(DType::float32)))),
        length_(options.length_of(config)),
        rows_(options.batch * length_) {}

  TapedModel make() {
    constexpr std::int64_t kIndexBytes = 4;
    const std::int64_t x = element_ * rows_ * config_.hidden_size;
    const std::int64_t v = element_ * rows_ * config_.vocab_size;
    TapedModel model{.segments = {}, .data = 2 * rows_ * kIndexBytes, .loss_value = kFloatBytes};
    bool needs_gradient = false;
    const auto run = [&](std::int64_t in, std::int64_t out, auto&& forward,
                         bool is_checkpointed = false) {
      PaperTape tape(element_, rows_);
      tape_ = &tape;
      if (is_checkpointed) tape.checkpoint(kept_operations());
      return tape.run(in, out, forward, needs_gradient);
    };
    const auto add = [&](SegmentMemory segment) {
      model.segments.push_back(std::make_shared<const SegmentMemory>(std::move(segment)));
    };
    add(run(0, x, [&](const Value&) {
      Weight table = weight("model.embed_tokens", config_.vocab_size * config_.hidden_size);
      if (config_.tie_word_embeddings) table.nbytes = 0;  // the head has made its gradient
      return tape_->embedding("embed_tokens", config_.hidden_size, table);
    }));
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const bool is_checkpointed = options_.recipe.checkpoints_block(i);
      std::shared_ptr<const SegmentMemory>& alike = alike_[is_checkpointed ? 1 : 0];
      if (options_.recipe.trains_all() && alike != nullptr) {
        model.segments.push_back(alike);
        continue;
      }
      path_ = fmt::format("model.layers.{}.", i);
      add(run(
          x, x, [&](const Value& input) { return block(input); }, is_checkpointed));
      alike = model.segments.back();
    }
    add(run(x, v, [&](const Value& input) { return head(input); }));
    model.loss = run(v, kFloatBytes, [&](const Value& logits) {
      return tape_->cross_entropy(logits, config_.vocab_size);
    });
    return model;
  }

 private:
  std::vector<std::string> kept_operations() const {
    const optim::Recipe& recipe = options_.recipe;
    if (recipe.checkpointing != Checkpointing::operations) return {};
    return recipe.kept_operations;
  }
  // The scopes are those of nn/layers.cpp: a value that is still named, or within the same
  // expression, is still held.
  Value block(const Value& x) {
    Value middle;
    {
      const Value normed = norm(path_ + "input_layernorm", x);
      middle = tape_->deferred_sum(x, attention(normed));
    }
    const Value normed = norm(path_ + "post_attention_layernorm", middle, /*with_sum=*/true);
    Value branch = mlp(normed);
    return tape_->add(middle, std::move(branch));
  }
  Value attention(const Value& x) {
    const std::int64_t d = config_.hidden_size, q_width = config_.query_width();
    const std::int64_t kv_width = config_.kv_width();
    const std::string path = path_ + "self_attn.";
    Value mixed;
    {
      const Value q = linear(path + "q_proj", x, d, q_width);
      const Value k = linear(path + "k_proj", x, d, kv_width);
      const Value v = linear(path + "v_proj", x, d, kv_width);
      mixed = tape_->attention(q, k, v,
                               {.batch = options_.batch,
                                .queries = length_,
                                .length = length_,
                                .heads = config_.num_attention_heads,
                                .kv_heads = config_.effective_kv_heads(),
                                .width = config_.head_dim()});
    }
    return linear(path + "o_proj", mixed, q_width, d);
  }
  Value mlp(const Value& x) {
    const std::int64_t d = config_.hidden_size, f = config_.intermediate_size;
    Value hidden;
    {
      const Value gate = linear(path_ + "mlp.gate_proj", x, d, f);
      const Value up = linear(path_ + "mlp.up_proj", x, d, f);
      hidden = tape_->swiglu(gate, up, f);
    }
    return linear(path_ + "mlp.down_proj", hidden, f, d);
  }
  Value head(const Value& x) {
    const std::int64_t d = config_.hidden_size, v = config_.vocab_size;
    const Value normed = norm("model.norm", x);
    const bool is_tied = config_.tie_word_embeddings;
    return tape_->linear("lm_head", normed, d, v,
                         weight(is_tied ? "model.embed_tokens" : "lm_head", d * v));
  }

  Value linear(const std::string& path, const Value& x, std::int64_t in, std::int64_t out) {
    const std::string name = path.substr(path.rfind('.') + 1);
    Value y = tape_->linear(name, x, in, out, weight(path, in * out));
    if (!options_.recipe.lora.adapts(path)) return y;
    const std::int64_t rank = options_.recipe.lora.rank;
    Value added;
    {
      const Value low =
          tape_->linear(name + ".lora_A", x, in, rank, weight(path + ".lora_A", in * rank));
      const Value scaled = tape_->scale(low, rank);
      added =
          tape_->linear(name + ".lora_B", scaled, rank, out, weight(path + ".lora_B", rank * out));
    }
    return tape_->add(y, std::move(added));
  }
  Value norm(const std::string& path, const Value& x, bool with_sum = false) {
    return tape_->rms_norm(path.substr(path.rfind('.') + 1), x, config_.hidden_size,
                           weight(path, config_.hidden_size), with_sum);
  }
  Weight weight(const std::string& module, std::int64_t numel) const {
    return {element_ * numel, tape_->is_recording() && options_.recipe.trains(module + ".weight")};
  }

  const nn::TransformerConfig& config_;
  const MemoryOptions& options_;
  std::int64_t element_;
  std::int64_t length_;
  std::int64_t rows_;
  std::string path_;  // of the block, with a dot
  PaperTape* tape_ = nullptr;
  std::array<std::shared_ptr<const SegmentMemory>, 2> alike_;  // blocks: taped, checkpointed
};

}  // namespace

bool is_in_float8(const MemoryOptions& options, const std::string& path) {
  if (!options.habits.computes_float8) return false;
  if (path == "lm_head.weight") return options.habits.head_in_float8;
  return path.starts_with("model.layers.") && path.ends_with("_proj.weight");
}

TapedModel taped_model(const nn::TransformerConfig& config, const MemoryOptions& options) {
  config.validate();
  if (options.framework != Framework::unshard) {
    return eager_model(config, options, options.length_of(config));
  }
  return PaperModel(config, options).make();
}

}  // namespace fsdp::paper
