#include "paper/eager_segments.h"

#include "paper/eager_tape.h"
#include "paper/formats.h"
#include "paper/segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace fsdp::paper {

namespace {

using Node = EagerTape::Node;

constexpr std::int64_t kIndex = 8;         // bytes of a token, a label or a position
constexpr std::int64_t kRandomState = 24;  // of attention, though nothing is dropped

class EagerLlama {
 public:
  EagerLlama(const nn::TransformerConfig& config, const MemoryOptions& options, std::int64_t length)
      : config_(config),
        options_(options),
        habits_(options.habits),
        element_(static_cast<std::int64_t>(
            size_of(options.recipe.precision.param_dtype_for(DType::float32)))),
        rows_(options.batch * length) {}

  TapedModel make() {
    TapedModel model;
    const std::int64_t x = of_rows(config_.hidden_size), v = of_rows(config_.vocab_size);
    bool needs_gradient = false;
    const auto run = [&](std::int64_t in, std::int64_t out, Checkpointing checkpoint,
                         auto&& forward) {
      EagerTape tape;
      tape_ = &tape;
      return tape.run(in, out, forward, checkpoint, needs_gradient);
    };
    const auto add = [&](SegmentMemory segment) {
      model.segments.push_back(std::make_shared<const SegmentMemory>(std::move(segment)));
    };
    add(run(0, x, Checkpointing::none, [&](const Value&) { return embedding(x); }));
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const Checkpointing checkpoint = checkpoint_of(i);
      if (const auto same = alike(i, checkpoint); same != nullptr) {
        model.segments.push_back(same);
        continue;
      }
      path_ = fmt::format("model.layers.{}.", i);
      add(run(x, x, checkpoint, [&](const Value& input) { return block(input); }));
      known_[checkpoint] = model.segments.back();
    }
    add(run(x, v, Checkpointing::none, [&](const Value& input) { return head(input); }));
    add_loss(run(v, kLoss, Checkpointing::none, [&](const Value& logits) { return loss(logits); }),
             model);
    model.data = 2 * kIndex * rows_;
    if (habits_.rotates_halves) {
      const std::int64_t length = options_.length_of(config_);
      model.data += length * (kIndex + 2 * element_ * config_.head_dim());
    }
    return model;
  }

 private:
  static constexpr std::int64_t kLoss = 8;  // and the sum of its weights

  Checkpointing checkpoint_of(std::int64_t layer) const {
    const optim::Recipe& recipe = options_.recipe;
    return recipe.checkpoints_block(layer) ? recipe.checkpointing : Checkpointing::none;
  }
  /// The first block differs from the others if what is below it needs no gradient.
  std::shared_ptr<const SegmentMemory> alike(std::int64_t layer, Checkpointing checkpoint) {
    if (!options_.recipe.trains_all() || layer == 0) return nullptr;
    return known_[checkpoint];
  }
  // The program drops the logits before backward, which makes d(loss) itself.
  void add_loss(SegmentMemory loss, TapedModel& model) const {
    MemoryPoint end = loss.forward.back();
    end.after = "del pred";
    end.activation -= std::exchange(loss.dropped, 0);
    model.loss_value = end.activation - loss.kept();
    loss.forward.push_back(std::move(end));
    MemoryPoint begin = loss.backward.front();
    begin.temp = 0;
    loss.backward.insert(loss.backward.begin(), std::move(begin));
    model.loss = std::move(loss);
  }

  Value embedding(std::int64_t out) {
    const Weight table = weight("model.embed_tokens", config_.vocab_size * config_.hidden_size);
    return tape_->apply("embed_tokens", {}, out,
                        {.weight_gradient = table.is_trained ? table.nbytes : 0,
                         .adds_gradient = config_.tie_word_embeddings});
  }
  // The scopes are those of torchtitan's functions: a local variable lives until its function
  // returns, and an argument until the call does.
  Value block(const Value& x) {
    const Value middle = tape_->add(x, attention_of_normed(x));
    return tape_->add(middle, mlp_of_normed(middle));
  }
  Value attention_of_normed(const Value& x) {
    return attention(norm(path_ + "input_layernorm", x));
  }
  Value mlp_of_normed(const Value& x) { return mlp(norm(path_ + "post_attention_layernorm", x)); }
  Value attention(const Value& x) {
    const std::int64_t d = config_.hidden_size, q_width = config_.query_width();
    const std::int64_t kv_width = config_.kv_width();
    const std::string path = path_ + "self_attn.";
    Value q = linear(path + "q_proj", x, d, q_width);
    Value k = linear(path + "k_proj", x, d, kv_width);
    Value v = linear(path + "v_proj", x, d, kv_width);
    rotate(q, k);
    if (kv_width != q_width && (!habits_.shares_heads || habits_.attends_by_products)) {
      k = tape_->apply("repeat_kv", {k}, of_rows(q_width), {});
      v = tape_->apply("repeat_kv", {v}, of_rows(q_width), {});
    }
    if (habits_.attends_by_products) {
      return linear(path + "o_proj", by_products(q, k, v), q_width, d);
    }
    const Value mixed = tape_->apply(
        "attention", {q, k, v}, of_rows(q_width),
        {.kind = Node::Kind::attention,
         .saves = {q, k, v},
         .saves_result = true,
         .side_result = kFloatBytes * rows_ * config_.num_attention_heads + kRandomState});
    return linear(path + "o_proj", mixed, q_width, d);
  }
  /// softmax(q·kᵀ + mask)·v, one by one; the softmax is in float32.
  Value by_products(const Value& q, const Value& k, const Value& v) {
    const std::string name = "attention";
    const std::int64_t length = options_.length_of(config_);
    const std::int64_t scores = of_rows(config_.num_attention_heads * length);
    const std::int64_t wide = scores / element_ * kFloatBytes;
    const std::int64_t out = of_rows(config_.query_width());
    Value weights = tape_->apply(name, {q, k}, scores, {.saves = {q, k}});
    weights = tape_->apply(name, {weights}, scores, {});
    weights = tape_->add(tape_->apply("mask", {}, element_ * length * length, {}), weights);
    weights = tape_->apply(name, {cast(weights, scores, wide)}, wide, {.saves_result = true});
    weights = cast(weights, wide, scores);
    const Value mixed = tape_->apply(name, {weights, v}, out, {.saves = {weights, v}});
    return tape_->apply(name, {mixed}, out, {});
  }
  /// x·cos + (-x₂, x₁)·sin
  Value with_halves_rotated(const Value& x, std::int64_t out) {
    const std::string name = "rotary";
    const Value straight = tape_->apply(name, {x}, out, {});
    const Value half = tape_->apply(name, {x}, out / 2, {.scratch = out});
    const Value across = tape_->apply(name, {tape_->apply(name, {half, x}, out, {})}, out, {});
    return tape_->add(straight, across);
  }
  // Else in float32, as complex numbers; both results at once.
  void rotate(Value& q, Value& k) {
    const std::int64_t q_out = of_rows(config_.query_width()), k_out = of_rows(config_.kv_width());
    if (habits_.rotates_halves) {
      q = with_halves_rotated(q, q_out);
      k = with_halves_rotated(k, k_out);
      return;
    }
    if (habits_.compiles_blocks) {
      q = tape_->apply("rotary", {q}, q_out, {});
      k = tape_->apply("rotary", {k}, k_out, {});
      return;
    }
    const auto in_float = [&](std::int64_t out) { return out / element_ * kFloatBytes; };
    const Value q_float = cast(q, q_out, in_float(q_out)),
                k_float = cast(k, k_out, in_float(k_out));
    const Node by_table{.scratch = kFloatBytes * config_.head_dim() * options_.length_of(config_)};
    const Value q_turned = tape_->apply("rotary", {q_float}, in_float(q_out), by_table);
    const Value k_turned = tape_->apply("rotary", {k_float}, in_float(k_out), by_table);
    q = cast(q_turned, in_float(q_out), q_out);
    k = cast(k_turned, in_float(k_out), k_out);
  }
  /// The same value, if its format is the same.
  Value cast(const Value& x, std::int64_t in, std::int64_t out) {
    return in == out ? x : tape_->apply("cast", {x}, out, {});
  }
  Value mlp(const Value& x) {
    const std::int64_t d = config_.hidden_size, f = config_.intermediate_size;
    // Eager torch keeps its result under the policy "op" though nobody asks for it; a compiler sees
    // that.
    const Node::Kind kind = habits_.compiles_blocks ? Node::Kind::other : Node::Kind::product;
    return linear(path_ + "mlp.down_proj", hidden(x), f, d, kind);
  }
  Value hidden(const Value& x) {
    const std::int64_t d = config_.hidden_size, f = config_.intermediate_size, out = of_rows(f);
    Value gate = linear(path_ + "mlp.gate_proj", x, d, f);
    if (habits_.compiles_blocks) {
      const Value up = linear(path_ + "mlp.up_proj", x, d, f);
      return tape_->apply("swiglu", {gate, up}, out, {.saves = {gate, up}});
    }
    gate = tape_->apply("silu", {gate}, out, {.saves = {gate}});
    const Value up = linear(path_ + "mlp.up_proj", x, d, f);
    return tape_->apply("mul", {gate, up}, out, {.saves = {gate, up}});
  }
  Value head(const Value& x) {
    const std::int64_t d = config_.hidden_size, v = config_.vocab_size;
    const bool is_tied = config_.tie_word_embeddings;
    return tape_->linear("lm_head", norm("model.norm", x), of_rows(v),
                         weight(is_tied ? "model.embed_tokens" : "lm_head", d * v),
                         Node::Kind::product, rounded("lm_head", d, v));
  }
  Value loss(const Value& logits) {
    const std::int64_t v = of_rows(config_.vocab_size), v_float = v / element_ * kFloatBytes;
    if (habits_.compiles_loss) {  // a row's maximum and the logarithm of its sum are kept
      return tape_->apply("cross_entropy", {logits}, kLoss,
                          {.saves = {logits}, .side_result = 2 * kFloatBytes * rows_});
    }
    const Value prediction = cast(logits, v, v_float);
    if (habits_.keeps_prediction) tape_->keep_alive(prediction);
    if (habits_.keeps_logits) tape_->keep_alive(logits);
    const Value log_probabilities =
        tape_->apply("log_softmax", {prediction}, v_float, {.saves_result = true});
    return tape_->apply(
        "nll_loss", {log_probabilities}, kLoss,
        {.saves = {log_probabilities}, .side_result = habits_.shifts_labels ? kIndex * rows_ : 0});
  }

  Value linear(const std::string& path, const Value& x, std::int64_t in, std::int64_t out,
               Node::Kind kind = Node::Kind::product) {
    const std::string name = path.substr(path.rfind('.') + 1);
    Value y =
        tape_->linear(name, x, of_rows(out), weight(path, in * out), kind, rounded(path, in, out));
    if (!options_.recipe.lora.adapts(path)) return y;
    const std::int64_t rank = options_.recipe.lora.rank;
    const Value low = tape_->linear(name + ".lora_A", x, of_rows(rank),
                                    weight(path + ".lora_A", in * rank), Node::Kind::product, {});
    const Value high = tape_->linear(name + ".lora_B", low, of_rows(out),
                                     weight(path + ".lora_B", rank * out), Node::Kind::product, {});
    return tape_->add(y, tape_->apply("scale", {high}, of_rows(out), {}));
  }
  Value norm(const std::string& path, const Value& x) {
    const std::string name = path.substr(path.rfind('.') + 1);
    const Weight scale = weight(path, config_.hidden_size);
    const std::int64_t gradient = scale.is_trained ? scale.nbytes : 0;
    const std::int64_t out = of_rows(config_.hidden_size), wide = out / element_ * kFloatBytes;
    const std::int64_t row = kFloatBytes * rows_;
    if (!habits_.norm_in_float32 || habits_.compiles_blocks) {
      return tape_->apply(name, {x}, out,
                          {.saves = {x}, .side_result = row, .weight_gradient = gradient});
    }
    const Value unscaled = cast(in_float32(name, cast(x, out, wide), wide, row), wide, out);
    Node scaled{.weight_gradient = gradient};
    if (x.origin != nullptr) scaled.scratch = out;
    if (gradient > 0) scaled.saves = {unscaled};
    return tape_->apply(name, {unscaled}, out, scaled);
  }
  /// x · rsqrt(mean(x²) + eps)
  Value in_float32(const std::string& name, const Value& x, std::int64_t wide, std::int64_t row) {
    const Value squared = tape_->apply(name + ".pow", {x}, wide, {.saves = {x}, .scratch = wide});
    const Value mean = tape_->apply(name + ".mean", {squared}, row, {});
    const Value rsqrt = tape_->apply(name + ".rsqrt", {mean}, row, {.saves_result = true});
    return tape_->apply(name + ".mul", {x, rsqrt}, wide, {.saves = {x, rsqrt}, .scratch = wide});
  }

  EagerTape::Rounded rounded(const std::string& module, std::int64_t in, std::int64_t out) const {
    if (!is_in_float8(options_, module + ".weight")) return {};
    return {.input = rows_ * in,
            .output = rows_ * out,
            .weight = habits_.gathers_float8 ? 0 : in * out,
            .turned = in * out,
            .is_fused = habits_.compiles_blocks};
  }
  std::int64_t of_rows(std::int64_t width) const { return element_ * rows_ * width; }
  Weight weight(const std::string& module, std::int64_t numel) const {
    return {element_ * numel, options_.recipe.trains(module + ".weight")};
  }

  const nn::TransformerConfig& config_;
  const MemoryOptions& options_;
  TorchHabits habits_;
  std::int64_t element_;
  std::int64_t rows_;
  std::string path_;  // of the block, with a dot
  EagerTape* tape_ = nullptr;
  std::map<Checkpointing, std::shared_ptr<const SegmentMemory>> known_;  // blocks
};

}  // namespace

TapedModel eager_model(const nn::TransformerConfig& config, const MemoryOptions& options,
                       std::int64_t length) {
  return EagerLlama(config, options, length).make();
}

}  // namespace fsdp::paper
