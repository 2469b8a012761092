#include "nn/transformer.h"

#include "autograd/functions.h"
#include "base/check.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

namespace fsdp::nn {

namespace {

void require(bool condition, std::string_view field, const std::string& what) {
  if (!condition) throw InputError(fmt::format("model.{}: {}", field, what));
}

void require_positive(std::int64_t value, std::string_view field) {
  require(value > 0, field, fmt::format("must be positive, is {}", value));
}

InitSpec residual_output_init(const TransformerConfig& config) {
  return InitSpec::truncated_normal(config.init_std /
                                    std::sqrt(2 * static_cast<double>(config.layers)));
}

}  // namespace

void TransformerConfig::validate() const {
  require_positive(vocabulary, "vocabulary");
  require_positive(width, "width");
  require_positive(layers, "layers");
  require_positive(heads, "heads");
  require_positive(ffn_width, "ffn_width");
  require_positive(max_sequence, "max_sequence");
  require(width % heads == 0, "heads", fmt::format("must divide width {}, is {}", width, heads));
  require(head_width() % 2 == 0, "heads",
          fmt::format("width / heads must be even (positions turn pairs), is {} / {} = {}", width,
                      heads, head_width()));
  require(kv_heads >= 0 && heads % effective_kv_heads() == 0, "kv_heads",
          fmt::format("must divide heads {} (0 = as many as heads), is {}", heads, kv_heads));
  require(norm_eps > 0 && std::isfinite(norm_eps), "norm_eps",
          fmt::format("must be positive, is {}", norm_eps));
  require(rope_theta > 0 && std::isfinite(rope_theta), "rope_theta",
          fmt::format("must be positive, is {}", rope_theta));
  require(init_std > 0 && std::isfinite(init_std), "init_std",
          fmt::format("must be positive, is {}", init_std));
}

std::int64_t TransformerConfig::parameter_count() const {
  // One shape per kind of parameter, and how many there are: numel_of() refuses what overflows.
  const std::int64_t d = width;
  const std::int64_t kv_width = effective_kv_heads() * head_width();
  const std::pair<std::int64_t, Shape> shapes[] = {{tie_embeddings ? 1 : 2, {vocabulary, d}},
                                                   {2 * layers, {d, d}},
                                                   {2 * layers, {d, kv_width}},
                                                   {3 * layers, {d, ffn_width}},
                                                   {2 * layers + 1, {d}}};
  std::int64_t count = 0;
  for (const auto& [times, shape] : shapes) {
    std::int64_t of_kind = 0;
    if (__builtin_mul_overflow(times, numel_of(shape), &of_kind) ||
        __builtin_add_overflow(count, of_kind, &count)) {
      throw InputError(fmt::format(
          "model.width: {} x {} layers has more parameters than a 64-bit number counts; "
          "use a smaller model",
          width, layers));
    }
  }
  return count;
}

TransformerConfig TransformerConfig::nano() {
  return {
      .vocabulary = 31, .width = 16, .layers = 2, .heads = 2, .ffn_width = 40, .max_sequence = 8};
}
TransformerConfig TransformerConfig::tiny() { return {}; }
TransformerConfig TransformerConfig::small() {
  return {.vocabulary = 256,
          .width = 384,
          .layers = 6,
          .heads = 6,
          .ffn_width = 1024,
          .max_sequence = 256};
}
TransformerConfig TransformerConfig::llama_124m() {
  return {.vocabulary = 50304,
          .width = 768,
          .layers = 12,
          .heads = 12,
          .ffn_width = 2048,
          .max_sequence = 1024,
          .tie_embeddings = true};
}
TransformerConfig TransformerConfig::llama_2b() {
  return {.vocabulary = 50304,
          .width = 1600,
          .layers = 48,
          .heads = 25,
          .ffn_width = 6400,
          .max_sequence = 1024};
}

Head::Head(const TransformerConfig& config, const Variable& tied) : tied_(tied) {
  norm_ = register_child("model.norm", std::make_shared<RmsNorm>(config.width, config.norm_eps));
  if (tied_.is_defined()) {
    register_shared_parameter("lm_head.weight", tied_);
  } else {
    lm_head_ = register_child("lm_head", std::make_shared<Linear>(Linear::Options{
                                             .in = config.width,
                                             .out = config.vocabulary,
                                             .bias = false,
                                             .init = InitSpec::truncated_normal(config.init_std)}));
  }
}

Variable Head::forward(const Variable& x) {
  const Variable normed = (*norm_)(x);
  return tied_.is_defined() ? linear(normed, tied_) : (*lm_head_)(normed);
}

TransformerLM::TransformerLM(const TransformerConfig& config) : config_(config) {
  config.validate();
  rotary_ =
      std::make_shared<RotaryTables>(config.max_sequence, config.head_width(), config.rope_theta);
  const InitSpec init = InitSpec::truncated_normal(config.init_std);
  embedding_ = register_child("model.embed_tokens",
                              std::make_shared<Embedding>(config.vocabulary, config.width, init));
  const Attention::Options attention{.width = config.width,
                                     .heads = config.heads,
                                     .kv_heads = config.effective_kv_heads(),
                                     .head_width = config.head_width(),
                                     .init = init,
                                     .output_init = residual_output_init(config)};
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(register_child(
        fmt::format("model.layers.{}", i),
        std::make_shared<Block>(attention, config.ffn_width, config.norm_eps, rotary_)));
  }
  head_ = register_child(
      "",
      std::make_shared<Head>(config, config.tie_embeddings ? embedding_->weight() : Variable()));
  register_child("model.rotary_emb", rotary_);
  if (Context::current().device().type != DeviceType::meta) rotary_->initialize_buffers();
}

Variable TransformerLM::forward(const Variable& tokens) {
  FSDP_CHECK(tokens.shape().size() == 2 && tokens.shape()[1] <= config_.max_sequence,
             "the model takes tokens (B, T) with T at most max_sequence = {}, got {}",
             config_.max_sequence, to_string(tokens.shape()));
  Variable x = (*embedding_)(tokens);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)(x);
}

}  // namespace fsdp::nn
