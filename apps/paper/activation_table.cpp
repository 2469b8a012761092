#include "paper/activation_table.h"

#include <initializer_list>

namespace fsdp::paper {

namespace {

constexpr std::int64_t kFloat = 4;  // bytes of what is float32 in every format

/// The points that changes lead to, one after the other. Where a change frees and allocates, it
/// frees first.
std::vector<MemoryPoint> points(std::int64_t activation, std::int64_t temp,
                                std::initializer_list<MemoryPoint> changes) {
  std::vector<MemoryPoint> result{{"entry", activation, temp}};
  for (const MemoryPoint& change : changes) {
    const MemoryPoint& last = result.back();
    result.push_back({change.after, last.activation + change.activation, last.temp + change.temp,
                      last.weight_grad + change.weight_grad});
  }
  return result;
}

/// Bytes of the things a micro-batch is made of (see the header), and of the weights.
struct Sizes {
  Sizes(const nn::TransformerConfig& config, std::int64_t batch, std::int64_t length, DType dtype) {
    const auto element = static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t rows = batch * length;
    x = element * rows * config.hidden_size;
    q = element * rows * config.query_width();
    kv = element * rows * config.kv_width();
    f = element * rows * config.intermediate_size;
    lse = kFloat * rows * config.num_attention_heads;
    v = element * rows * config.vocab_size;
    r = kFloat * rows;
    w_norm = element * config.hidden_size;
    w_q = element * config.hidden_size * config.query_width();
    w_kv = element * config.hidden_size * config.kv_width();
    w_ffn = element * config.hidden_size * config.intermediate_size;
    w_vocabulary = element * config.hidden_size * config.vocab_size;
  }
  std::int64_t x, q, kv, f, lse, v, r;
  std::int64_t w_norm, w_q, w_kv, w_ffn, w_vocabulary;
};

SegmentMemory embedding_memory(const Sizes& s, bool is_tied) {
  return {.forward = points(0, 0, {{"embed_tokens", s.x}}),
          .backward = points(0, s.x,
                             {{"embed_tokens: weight", 0, 0, is_tied ? 0 : s.w_vocabulary},
                              {"embed_tokens", 0, -s.x}})};
}

SegmentMemory block_memory(const Sizes& s) {
  SegmentMemory block;
  block.forward = points(s.x, 0,
                         {{"input_layernorm", s.x + s.r},
                          {"q_proj", s.q},
                          {"k_proj", s.kv},
                          {"v_proj", s.kv},
                          {"attention", s.q + s.lse},
                          {"o_proj", s.x},
                          {"add", 0},  // written over o_proj's result
                          {"post_attention_layernorm", s.x + s.r},
                          {"gate_proj", s.f},
                          {"up_proj", s.f},
                          {"swiglu", s.f},
                          {"down_proj", s.x},
                          {"add", 0}});  // likewise
  const std::int64_t kept = 4 * s.x + 2 * s.q + 2 * s.kv + 3 * s.f + s.lse + 2 * s.r;
  // The gradient of the output stays until the end: it is also that of the residual path.
  block.backward = points(kept, s.x,
                          {{"down_proj: weight", 0, 0, s.w_ffn},
                           {"down_proj", -s.f, s.f},       // hidden goes, its gradient comes
                           {"swiglu", -2 * s.f, 2 * s.f},  // written over gate and up
                           {"swiglu: end", 0, -s.f},
                           {"up_proj: weight", 0, 0, s.w_ffn},
                           {"up_proj", 0, s.x},
                           {"up_proj: end", 0, -s.f},
                           {"gate_proj: weight", 0, 0, s.w_ffn},
                           {"gate_proj", -s.x, -s.f},  // adds to up_proj's
                           {"post_attention_layernorm: weight", 0, 0, s.w_norm},
                           {"post_attention_layernorm", -s.x - s.r, -s.x},
                           {"o_proj: weight", 0, 0, s.w_q},
                           {"o_proj", 0, s.q},
                           {"attention", 0, s.q + 2 * s.kv},
                           {"attention: end", -2 * s.q - 2 * s.kv - s.lse, -s.q},
                           {"v_proj: weight", 0, 0, s.w_kv},
                           {"v_proj", 0, s.x},
                           {"v_proj: end", 0, -s.kv},
                           {"k_proj: weight", 0, 0, s.w_kv},
                           {"k_proj", 0, -s.kv},
                           {"q_proj: weight", 0, 0, s.w_q},
                           {"q_proj", -s.x, -s.q},
                           {"input_layernorm: weight", 0, 0, s.w_norm},
                           {"input_layernorm", -s.x - s.r, -s.x}});
  return block;
}

SegmentMemory head_memory(const Sizes& s) {
  return {.forward = points(s.x, 0, {{"norm", s.x + s.r}, {"lm_head", s.v}}),
          .backward = points(2 * s.x + s.r, s.v,
                             {{"lm_head: weight", 0, 0, s.w_vocabulary},
                              {"lm_head", -s.x, s.x},
                              {"lm_head: end", 0, -s.v},
                              {"norm", 0, s.x},
                              {"norm: weight", 0, 0, s.w_norm},
                              {"norm: end", -s.x - s.r, -s.x}})};
}

SegmentMemory loss_memory(const Sizes& s) {
  return {.forward = points(s.v, 0, {{"loss", kFloat}, {"cross_entropy", s.r}}),
          .backward = points(s.v + s.r, 0,
                             {{"d(loss)", 0, kFloat},
                              {"cross_entropy", -s.v, s.v},  // written over the logits
                              {"cross_entropy: end", -s.r, -kFloat}})};
}

}  // namespace

ActivationTable activation_table(const nn::TransformerConfig& config, std::int64_t batch,
                                 std::int64_t length, DType dtype) {
  config.validate();
  const Sizes sizes(config, batch, length, dtype);
  return {.embedding = embedding_memory(sizes, config.tie_word_embeddings),
          .block = block_memory(sizes),
          .head = head_memory(sizes),
          .loss = loss_memory(sizes),
          .data = 2 * batch * length * 4,  // int32
          .loss_value = kFloat};
}

}  // namespace fsdp::paper
