/// @file
/// @ingroup nn
/// The layers of a Llama-style transformer. Letters: B T d V, F feed-forward, H heads, G
/// key/value heads.
#pragma once

#include "nn/module.h"
#include "tensor/rope_scaling.h"

namespace fsdp::nn {

class KeyValues;

/// y (…, out) = x (…, in) · weightᵀ (+ bias).  weight (out, in).
class Linear : public Module {
 public:
  struct Options {
    std::int64_t in;
    std::int64_t out;
    bool bias = false;
    InitSpec init = InitSpec::truncated_normal(0.02);
  };
  /// @throws Error unless in and out are positive.
  explicit Linear(const Options& options);
  const Variable& weight() const { return weight_; }
  /// From now on y has branch(x) added (lora.h). @throws Error if there is a branch already.
  void attach(std::shared_ptr<Module> branch);

 protected:
  Variable forward(const Variable& x) override;

 private:
  Variable weight_;
  Variable bias_;
  std::shared_ptr<Module> branch_;  // null: none
};

/// One without a bias.
std::shared_ptr<Linear> make_linear(std::int64_t in, std::int64_t out, const InitSpec& init);

/// y (B, T, d) = weight (V, d) at tokens (B, T) int32. The row of the token `padding` (-1: there is
/// none) begins with zeros, and gets no gradient from here. Source: torch.nn.Embedding.
class Embedding : public Module {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t width, InitSpec init, std::int64_t padding = -1);
  const Variable& weight() const { return weight_; }

 protected:
  Variable forward(const Variable& tokens) override;

 private:
  Variable weight_;
  std::int64_t padding_;
};

/// Root mean square normalization (Zhang and Sennrich 2019). weight (d), ones at first.
class RmsNorm : public Module {
 public:
  RmsNorm(std::int64_t width, double eps);

 protected:
  Variable forward(const Variable& x) override;

 private:
  Variable weight_;
  double eps_;
};

/// The angles of the rotary position embedding (Su et al. 2021): buffers cos, sin (T, D/2), shared
/// by all layers.
class RotaryTables : public Module {
 public:
  RotaryTables(std::int64_t max_sequence, std::int64_t head_width, double theta,
               const RopeScaling& scaling = {});
  void initialize_buffers() override;
  const Tensor& cos() const { return buffer("cos"); }
  const Tensor& sin() const { return buffer("sin"); }

 protected:
  Variable forward(const Variable& x) override;  ///< not called

 private:
  double theta_;
  RopeScaling scaling_;
};

/// Causal multi-head attention with rotary positions; children q_proj, k_proj, v_proj, o_proj.
class Attention : public Module {
 public:
  struct Options {
    std::int64_t width;
    int heads;
    int kv_heads;
    std::int64_t head_width;
    InitSpec init;
    InitSpec output_init;
  };
  Attention(const Options& options, std::shared_ptr<RotaryTables> rotary);
  /// Keys and values that forward() continues, see key_value_cache.h; null: there are none.
  void set_past(KeyValues* past);
  /// The tokens whose keys and values come before; 0: there are none.
  std::int64_t past_length() const;

 protected:
  Variable forward(const Variable& x) override;

 private:
  Options options_;
  std::shared_ptr<RotaryTables> rotary_;  // a child of the model, not of this module
  std::shared_ptr<Linear> q_, k_, v_, o_;
  KeyValues* past_ = nullptr;
};

/// down(silu(gate(x)) * up(x)); children gate_proj, up_proj, down_proj.
class SwiGlu : public Module {
 public:
  SwiGlu(std::int64_t width, std::int64_t ffn_width, InitSpec init, InitSpec output_init);

 protected:
  Variable forward(const Variable& x) override;

 private:
  std::shared_ptr<Linear> gate_, up_, down_;
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
class Block : public Module {
 public:
  Block(const Attention::Options& attention, std::int64_t ffn_width, double eps,
        std::shared_ptr<RotaryTables> rotary);
  Attention& attention() { return *attention_; }

 protected:
  Variable forward(const Variable& x) override;

 private:
  std::shared_ptr<RmsNorm> input_norm_, post_attention_norm_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<SwiGlu> mlp_;
};

}  // namespace fsdp::nn
