#include "paper/segments.h"

#include "nn/lora.h"
#include "paper/eager_segments.h"
#include "paper/formats.h"
#include "paper/paper_tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::paper {

namespace {

using paper::PaperTape;
using paper::Value;
using paper::Weight;

/// The model, in bytes.
class PaperModel {
 public:
  PaperModel(const nn::TransformerConfig& config, const MemoryOptions& options, std::int64_t length,
             bool has_tape)
      : config_(config),
        options_(options),
        has_tape_(has_tape),
        element_(static_cast<std::int64_t>(
            size_of(options.recipe.precision.param_dtype_for(DType::float32)))),
        rows_(options.batch * length) {}

  std::vector<SegmentMemory> segments() {
    const std::int64_t x = row_bytes(config_.hidden_size);
    std::vector<SegmentMemory> all;
    bool needs_gradient = false;
    const auto run = [&](std::int64_t in, std::int64_t out, auto&& forward,
                         bool is_checkpointed = false) {
      PaperTape tape;
      tape_ = &tape;
      if (is_checkpointed) tape.checkpoint(kept_operations());
      all.push_back(tape.run(in, out, forward, needs_gradient));
    };
    run(0, x, [&](const Value&) {
      Weight table = weight("model.embed_tokens", config_.vocab_size * config_.hidden_size);
      if (config_.tie_word_embeddings) table.nbytes = 0;  // the head has made its gradient
      return tape_->embedding("embed_tokens", x, table);
    });
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      path_ = fmt::format("model.layers.{}.", i);
      run(
          x, x, [&](const Value& input) { return block(input); },
          has_tape_ && options_.recipe.checkpoints_block(i));
    }
    run(x, row_bytes(config_.vocab_size), [&](const Value& input) { return head(input); });
    return all;
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
      middle = tape_->add(x, attention(normed));
    }
    const Value normed = norm(path_ + "post_attention_layernorm", middle);
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
      mixed = tape_->attention(q, k, v, row_bytes(q_width),
                               kFloatBytes * rows_ * config_.num_attention_heads,
                               {row_bytes(q_width), row_bytes(kv_width), row_bytes(kv_width)});
    }
    return linear(path + "o_proj", mixed, q_width, d);
  }
  Value mlp(const Value& x) {
    const std::int64_t d = config_.hidden_size, f = config_.intermediate_size;
    Value hidden;
    {
      const Value gate = linear(path_ + "mlp.gate_proj", x, d, f);
      const Value up = linear(path_ + "mlp.up_proj", x, d, f);
      hidden = tape_->swiglu(gate, up, row_bytes(f));
    }
    return linear(path_ + "mlp.down_proj", hidden, f, d);
  }
  Value head(const Value& x) {
    const std::int64_t d = config_.hidden_size, v = config_.vocab_size;
    const Value normed = norm("model.norm", x);
    const bool is_tied = config_.tie_word_embeddings;
    return tape_->linear("lm_head", normed, row_bytes(v),
                         weight(is_tied ? "model.embed_tokens" : "lm_head", d * v));
  }

  Value linear(const std::string& path, const Value& x, std::int64_t in, std::int64_t out) {
    const std::string name = path.substr(path.rfind('.') + 1);
    Value y = tape_->linear(name, x, row_bytes(out), weight(path, in * out));
    if (!is_adapted(options_, path)) return y;
    const std::int64_t rank = options_.recipe.lora.rank;
    Value added;
    {
      const Value low =
          tape_->linear(name + ".lora_A", x, row_bytes(rank), weight(path + ".lora_A", in * rank));
      const Value scaled = tape_->scale(low, row_bytes(rank));
      added = tape_->linear(name + ".lora_B", scaled, row_bytes(out),
                            weight(path + ".lora_B", rank * out));
    }
    return tape_->add(y, std::move(added));
  }
  Value norm(const std::string& path, const Value& x) {
    return tape_->rms_norm(path.substr(path.rfind('.') + 1), x, row_bytes(config_.hidden_size),
                           kFloatBytes * rows_, weight(path, config_.hidden_size));
  }

  std::int64_t row_bytes(std::int64_t width) const { return element_ * rows_ * width; }
  Weight weight(const std::string& module, std::int64_t numel) const {
    return {element_ * numel,
            has_tape_ && tape_->is_recording() && is_trained(options_, module + ".weight")};
  }

  const nn::TransformerConfig& config_;
  const MemoryOptions& options_;
  bool has_tape_;
  std::int64_t element_;
  std::int64_t rows_;
  std::string path_;  // of the block, with a dot
  PaperTape* tape_ = nullptr;
};

}  // namespace

bool is_in_float8(const MemoryOptions& options, const std::string& path) {
  if (!options.habits.computes_float8) return false;
  if (path == "lm_head.weight") return options.habits.head_in_float8;
  return path.starts_with("model.layers.") && path.ends_with("_proj.weight");
}

bool is_trained(const MemoryOptions& options, const std::string& path) {
  return options.recipe.says_trained(path).value_or(!options.recipe.has_lora() ||
                                                    nn::is_lora(path));
}

bool is_adapted(const MemoryOptions& options, const std::string& path) {
  return options.recipe.lora.rank > 0 &&
         std::ranges::any_of(options.recipe.lora.targets, [&](const std::string& target) {
           return path == target || path.ends_with("." + target);
         });
}

std::vector<SegmentMemory> segments_on_paper(const nn::TransformerConfig& config,
                                             const MemoryOptions& options, std::int64_t length,
                                             bool has_tape) {
  return PaperModel(config, options, length, has_tape).segments();
}

namespace {

std::shared_ptr<const SegmentMemory> shared(SegmentMemory segment) {
  return std::make_shared<const SegmentMemory>(std::move(segment));
}

SegmentMemory checkpointed_block(nn::TransformerConfig config, MemoryOptions options,
                                 std::int64_t length) {
  config.num_hidden_layers = options.recipe.checkpoint_every = 1;
  return segments_on_paper(config, options, length)[1];
}

// All blocks are alike, but for their checkpoints.
Segments uniform_segments(const nn::TransformerConfig& config, const MemoryOptions& options,
                          std::int64_t length, const ActivationTable& table) {
  const optim::Recipe& recipe = options.recipe;
  const auto block = shared(table.block);
  const auto again =
      recipe.checkpoints_blocks() ? shared(checkpointed_block(config, options, length)) : nullptr;
  Segments all{shared(table.embedding)};
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    all.push_back(recipe.checkpoints_block(i) ? again : block);
  }
  all.push_back(shared(table.head));
  return all;
}

Segments segments_of(const nn::TransformerConfig& config, const MemoryOptions& options,
                     std::int64_t length, const ActivationTable& table) {
  if (options.recipe.trains_all()) {
    return uniform_segments(config, options, length, table);
  }
  Segments all;
  for (SegmentMemory& each : segments_on_paper(config, options, length)) {
    all.push_back(shared(std::move(each)));
  }
  return all;
}

}  // namespace

TapedModel taped_model(const nn::TransformerConfig& config, const MemoryOptions& options) {
  const std::int64_t length = options.length_of(config);
  if (options.framework != Framework::unshard) return eager_model(config, options, length);
  const ActivationTable table = activation_table(
      config, options.batch, length, options.recipe.precision.param_dtype_for(DType::float32));
  return {.segments = segments_of(config, options, length, table),
          .loss = table.loss,
          .data = table.data,
          .loss_value = table.loss_value};
}

}  // namespace fsdp::paper
