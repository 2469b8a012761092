#include "nn/transformer_config.h"

#include "base/check.h"
#include "base/types.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace fsdp::nn {

namespace {

void require(bool condition, std::string_view field, const std::string& what) {
  if (!condition) throw InputError(fmt::format("model.{}: {}", field, what));
}

template <class T>
void require_within(const Limits& limits, T value, std::string_view field,
                    std::string_view remark = "") {
  const auto number = static_cast<double>(value);  // a NaN is not within
  require(
      number >= limits.least && number <= limits.most, field,
      fmt::format("is {}, must be between {} and {}{}", value, limits.least, limits.most, remark));
}

void require_valid(const RopeScaling& scaling) {
  const auto& [factor, low, high, original] = scaling;
  if (!scaling.is_on()) return;
  require_within(kLimits.rope_factor, factor, "rope_factor", " (0 = no scaling)");
  require_within(kLimits.turns, low, "rope_low_freq_factor");
  require_within(kLimits.turns, high, "rope_high_freq_factor");
  require(high > low, "rope_high_freq_factor",
          fmt::format("must be more than rope_low_freq_factor {}, is {}", low, high));
  require_within(kLimits.size, original, "rope_original_context");
}

}  // namespace

void TransformerConfig::validate() const {
  require_within(kLimits.size, vocab_size, "vocab_size");
  require_within(kLimits.size, hidden_size, "hidden_size");
  require_within(kLimits.layers, num_hidden_layers, "num_hidden_layers");
  require_within(kLimits.heads, num_attention_heads, "num_attention_heads");
  require_within(kLimits.size, intermediate_size, "intermediate_size");
  require_within(kLimits.size, max_position_embeddings, "max_position_embeddings");
  require(explicit_head_dim >= 0 &&
              static_cast<double>(explicit_head_dim) <= kLimits.head_dim.most &&
              explicit_head_dim % 2 == 0,
          "head_dim",
          fmt::format("must be even (positions turn pairs) and at most {} (0 = hidden_size / "
                      "num_attention_heads), is {}",
                      kLimits.head_dim.most, explicit_head_dim));
  require(explicit_head_dim != 0 || hidden_size % num_attention_heads == 0, "num_attention_heads",
          fmt::format("must divide hidden_size {}, is {}", hidden_size, num_attention_heads));
  require(head_dim() % 2 == 0, "num_attention_heads",
          fmt::format("hidden_size / num_attention_heads must be even (positions turn pairs), is "
                      "{} / {} = {}",
                      hidden_size, num_attention_heads, head_dim()));
  require(num_key_value_heads >= 0 && num_attention_heads % effective_kv_heads() == 0,
          "num_key_value_heads",
          fmt::format("must divide num_attention_heads {} (0 = as many), is {}",
                      num_attention_heads, num_key_value_heads));
  require_within(kLimits.eps, rms_norm_eps, "rms_norm_eps");
  require_within(kLimits.theta, rope_theta, "rope_theta");
  require_within(kLimits.deviation, initializer_range, "initializer_range");
  require(pad_token_id >= -1 && pad_token_id < vocab_size, "pad_token_id",
          fmt::format("must be a token of the vocabulary, below {} (-1 = none), is {}", vocab_size,
                      pad_token_id));
  require_valid(rope_scaling);
}

std::int64_t TransformerConfig::parameter_count() const {
  // One shape per kind of parameter, and how many there are: numel_of() refuses what overflows.
  const std::int64_t d = hidden_size;
  const std::pair<std::int64_t, Shape> shapes[] = {{tie_word_embeddings ? 1 : 2, {vocab_size, d}},
                                                   {2 * num_hidden_layers, {d, query_width()}},
                                                   {2 * num_hidden_layers, {d, kv_width()}},
                                                   {3 * num_hidden_layers, {d, intermediate_size}},
                                                   {2 * num_hidden_layers + 1, {d}}};
  std::int64_t count = 0;
  for (const auto& [times, shape] : shapes) {
    std::int64_t of_kind = 0;
    if (__builtin_mul_overflow(times, numel_of(shape), &of_kind) ||
        __builtin_add_overflow(count, of_kind, &count)) {
      throw InputError(fmt::format(
          "model.hidden_size: {} x {} layers has more parameters than a 64-bit number counts; "
          "use a smaller model",
          hidden_size, num_hidden_layers));
    }
  }
  return count;
}

TransformerConfig TransformerConfig::nano() {
  return {.vocab_size = 31,
          .hidden_size = 16,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 40,
          .max_position_embeddings = 8};
}
TransformerConfig TransformerConfig::tiny() { return {}; }
TransformerConfig TransformerConfig::small() {
  return {.vocab_size = 256,
          .hidden_size = 384,
          .num_hidden_layers = 6,
          .num_attention_heads = 6,
          .intermediate_size = 1024,
          .max_position_embeddings = 256};
}
TransformerConfig TransformerConfig::llama_124m() {
  return {.vocab_size = 50304,
          .hidden_size = 768,
          .num_hidden_layers = 12,
          .num_attention_heads = 12,
          .intermediate_size = 2048,
          .max_position_embeddings = 1024,
          .tie_word_embeddings = true};
}
TransformerConfig TransformerConfig::llama_2b() {
  return {.vocab_size = 50304,
          .hidden_size = 1600,
          .num_hidden_layers = 48,
          .num_attention_heads = 25,
          .intermediate_size = 6400,
          .max_position_embeddings = 1024};
}
TransformerConfig TransformerConfig::llama2_debug() {
  return {.vocab_size = 2048,
          .hidden_size = 256,
          .num_hidden_layers = 8,
          .num_attention_heads = 16,
          .intermediate_size = 768,
          .max_position_embeddings = 2048};
}
TransformerConfig TransformerConfig::llama3_debug() {
  TransformerConfig config = llama2_debug();
  config.num_hidden_layers = 6;
  config.rope_theta = 500000;
  return config;
}
TransformerConfig TransformerConfig::llama2_7b() {
  return {.vocab_size = 32000,
          .hidden_size = 4096,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .intermediate_size = 11008,
          .max_position_embeddings = 4096};
}
TransformerConfig TransformerConfig::llama2_13b() {
  return {.vocab_size = 32000,
          .hidden_size = 5120,
          .num_hidden_layers = 40,
          .num_attention_heads = 40,
          .intermediate_size = 13824,
          .max_position_embeddings = 4096};
}
TransformerConfig TransformerConfig::llama2_70b() {
  return {.vocab_size = 32000,
          .hidden_size = 8192,
          .num_hidden_layers = 80,
          .num_attention_heads = 64,
          .num_key_value_heads = 8,
          .intermediate_size = 28672,
          .max_position_embeddings = 4096};
}
TransformerConfig TransformerConfig::llama3_8b() {
  return {.vocab_size = 128256,
          .hidden_size = 4096,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .num_key_value_heads = 8,
          .intermediate_size = 14336,
          .max_position_embeddings = 8192,
          .rope_theta = 500000};
}
TransformerConfig TransformerConfig::llama3_70b() {
  TransformerConfig config = llama3_8b();
  config.hidden_size = 8192;
  config.num_hidden_layers = 80;
  config.num_attention_heads = 64;
  config.intermediate_size = 28672;
  return config;
}
TransformerConfig TransformerConfig::llama3_405b() {
  TransformerConfig config = llama3_8b();
  config.hidden_size = 16384;
  config.num_hidden_layers = 126;
  config.num_attention_heads = 128;
  config.intermediate_size = 53248;
  config.max_position_embeddings = 131072;
  config.rope_scaling = {.factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_max_position_embeddings = 8192};
  return config;
}

const std::map<std::string, TransformerConfig>& model_presets() {
  using Model = TransformerConfig;
  static const std::map<std::string, Model> presets = {
      {"nano", Model::nano()},
      {"tiny", Model::tiny()},
      {"small", Model::small()},
      {"llama_124m", Model::llama_124m()},
      {"llama_2b", Model::llama_2b()},
      {"llama2_debug", Model::llama2_debug()},
      {"llama3_debug", Model::llama3_debug()},
      {"llama2_7b", Model::llama2_7b()},
      {"llama2_13b", Model::llama2_13b()},
      {"llama2_70b", Model::llama2_70b()},
      {"llama3_8b", Model::llama3_8b()},
      {"llama3_70b", Model::llama3_70b()},
      {"llama3_405b", Model::llama3_405b()},
  };
  return presets;
}

}  // namespace fsdp::nn
