#include "nn/layers.h"

#include "autograd/deferred_sum.h"
#include "autograd/functions.h"
#include "base/check.h"
#include "nn/key_value_cache.h"

#include <utility>

namespace fsdp::nn {

std::shared_ptr<Linear> make_linear(std::int64_t in, std::int64_t out, const InitSpec& init) {
  return std::make_shared<Linear>(Linear::Options{.in = in, .out = out, .init = init});
}

Linear::Linear(const Options& options) {
  FSDP_CHECK(options.in > 0 && options.out > 0, "Linear: in = {} and out = {} must be positive",
             options.in, options.out);
  weight_ = register_parameter("weight", {options.out, options.in}, options.init);
  if (options.bias) bias_ = register_parameter("bias", {options.out}, InitSpec::zeros());
}

void Linear::attach(std::shared_ptr<Module> branch) {
  FSDP_CHECK(branch_ == nullptr, "'{}' has a branch already", path());
  branch_ = register_child("", std::move(branch));
}

Variable Linear::forward(const Variable& x) {
  Variable y = linear(x, weight_, bias_);
  if (branch_ == nullptr) return y;
  Variable added = (*branch_)(x);
  return add(y, std::move(added));
}

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width, InitSpec init,
                     std::int64_t padding)
    : padding_(padding) {
  if (padding >= 0) {  // a range that a slice of the table can know, wherever it is cut
    init.zero_begin = padding * width;
    init.zero_end = init.zero_begin + width;
  }
  weight_ = register_parameter("weight", {vocabulary, width}, init);
}

Variable Embedding::forward(const Variable& tokens) {
  return embedding(weight_, tokens.data(), padding_);
}

RmsNorm::RmsNorm(std::int64_t width, double eps)
    : weight_(register_parameter("weight", {width}, InitSpec::ones())), eps_(eps) {}

Variable RmsNorm::forward(const Variable& x) { return rms_norm(x, weight_, eps_); }

RotaryTables::RotaryTables(std::int64_t max_sequence, std::int64_t head_width, double theta,
                           const RopeScaling& scaling)
    : theta_(theta), scaling_(scaling) {
  FSDP_CHECK(head_width % 2 == 0,
             "rotary positions rotate pairs, so the head width {} must be even", head_width);
  register_buffer("cos", {max_sequence, head_width / 2});
  register_buffer("sin", {max_sequence, head_width / 2});
}

void RotaryTables::initialize_buffers() {
  const Device device = Context::current().device();
  for (Buffer& buffer : own_buffers()) {
    if (buffer.tensor.device().type == DeviceType::meta) {
      FSDP_CHECK(device.type != DeviceType::meta,
                 "initialize_buffers() of '{}' needs memory, but the current device is meta; open "
                 "a DeviceScope of the device where the model belongs",
                 path());
      const AllocationScope scope(MemoryKind::buffer,
                                  std::make_shared<const Owner>(Owner{"", buffer.name}));
      buffer.tensor = Tensor::empty(buffer.tensor.shape(), buffer.tensor.dtype(), device);
    }
    buffer.tensor.storage()->allocate();
    buffer.is_initialized = true;
  }
  ops::rope_tables(cos(), sin(), theta_, scaling_);
}

Variable RotaryTables::forward(const Variable&) {
  fail("'{}' only holds tables and has no forward of its own", path());
}

Attention::Attention(const Options& options, std::shared_ptr<RotaryTables> rotary)
    : options_(options), rotary_(std::move(rotary)) {
  FSDP_CHECK(options.heads > 0 && options.kv_heads > 0 && options.heads % options.kv_heads == 0,
             "Attention: {} key/value heads must divide {} heads", options.kv_heads, options.heads);
  const std::int64_t q_width = options.heads * options.head_width;
  const std::int64_t kv_width = options.kv_heads * options.head_width;
  q_ = register_child("q_proj", make_linear(options.width, q_width, options.init));
  k_ = register_child("k_proj", make_linear(options.width, kv_width, options.init));
  v_ = register_child("v_proj", make_linear(options.width, kv_width, options.init));
  o_ = register_child("o_proj", make_linear(q_width, options.width, options.output_init));
}

void Attention::set_past(KeyValues* past) {
  FSDP_CHECK(past == nullptr || past_ == nullptr, "'{}' already keeps its keys and values", path());
  past_ = past;
}

std::int64_t Attention::past_length() const { return past_ == nullptr ? 0 : past_->length(); }

// Each result is named, and given up where it is used up: the order of evaluation, which is also
// the order of the tape, must not be left to the compiler.
Variable Attention::forward(const Variable& x) {
  const int heads = options_.heads, kv_heads = options_.kv_heads;
  const Tensor& cos = rotary_->cos();
  const Tensor& sin = rotary_->sin();
  Variable mixed;
  {
    const Variable q = (*q_)(x);
    const Variable k = (*k_)(x);
    const Variable v = (*v_)(x);
    mixed = past_ == nullptr ? rope_attention(q, k, v, heads, kv_heads, cos, sin)
                             : past_->attend(q, k, v, heads, kv_heads, cos, sin);
  }
  return (*o_)(mixed);
}

SwiGlu::SwiGlu(std::int64_t width, std::int64_t ffn_width, InitSpec init, InitSpec output_init) {
  gate_ = register_child("gate_proj", make_linear(width, ffn_width, init));
  up_ = register_child("up_proj", make_linear(width, ffn_width, init));
  down_ = register_child("down_proj", make_linear(ffn_width, width, output_init));
}

Variable SwiGlu::forward(const Variable& x) {
  Variable hidden;
  {
    const Variable gate = (*gate_)(x);
    const Variable up = (*up_)(x);
    hidden = swiglu(gate, up);
  }
  return (*down_)(hidden);
}

// Members and children in the order of Hugging Face's LlamaDecoderLayer.
Block::Block(const Attention::Options& attention, std::int64_t ffn_width, double eps,
             std::shared_ptr<RotaryTables> rotary) {
  attention_ =
      register_child("self_attn", std::make_shared<Attention>(attention, std::move(rotary)));
  mlp_ = register_child("mlp", std::make_shared<SwiGlu>(attention.width, ffn_width, attention.init,
                                                        attention.output_init));
  input_norm_ = register_child("input_layernorm", std::make_shared<RmsNorm>(attention.width, eps));
  post_attention_norm_ =
      register_child("post_attention_layernorm", std::make_shared<RmsNorm>(attention.width, eps));
}

Variable Block::forward(const Variable& x) {
  Variable branch = (*attention_)((*input_norm_)(x));
  DeferredSum middle(x, std::move(branch));  // the norm after it computes it: memory is read once
  branch = (*mlp_)((*post_attention_norm_)(middle.result()));
  return add(middle.finish(), std::move(branch));
}

}  // namespace fsdp::nn
