/// @file
/// @ingroup nn
/// TransformerConfig: the sizes of a model, which is data and needs no module.
#pragma once

#include "tensor/rope_scaling.h"

#include <cstdint>
#include <map>
#include <string>

namespace fsdp::nn {

struct Limits {
  double least;
  double most;
};

/// What the fields of a TransformerConfig may be, wherever they are written: in a configuration, in
/// a config.json, or on a command line.
struct TransformerLimits {
  Limits size{1, 1e9};  ///< V, d, F, T, and the original context of scaled positions
  Limits layers{1, 10'000};
  Limits heads{1, 100'000};  ///< H, and G where it is not 0
  Limits head_dim{1, 1e6};   ///< where it is not 0
  Limits eps{1e-30, 1};
  Limits theta{1, 1e30};
  Limits rope_factor{1, 1e6};  ///< where it is not 0
  Limits turns{1e-6, 1e6};     ///< rope_low_freq_factor, rope_high_freq_factor
  Limits deviation{1e-30, 100};
};
inline constexpr TransformerLimits kLimits;

/// The sizes of a model, named as in Hugging Face's LlamaConfig.
struct TransformerConfig {
  std::int64_t vocab_size = 256;               ///< V
  std::int64_t hidden_size = 128;              ///< d
  std::int64_t num_hidden_layers = 4;          ///< L
  int num_attention_heads = 4;                 ///< H, divides d unless D is given
  int num_key_value_heads = 0;                 ///< G, divides H; 0 = H
  std::int64_t explicit_head_dim = 0;          ///< D; 0 = d / H
  std::int64_t intermediate_size = 352;        ///< F
  std::int64_t max_position_embeddings = 128;  ///< T
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling = {};
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;  ///< outputs of a residual branch: divided by sqrt(2 L)
  /// Its row of the embedding begins with zeros, and has no gradient from there; -1 = none.
  std::int64_t pad_token_id = -1;

  int effective_kv_heads() const {
    return num_key_value_heads == 0 ? num_attention_heads : num_key_value_heads;
  }
  std::int64_t head_dim() const {
    return explicit_head_dim == 0 ? hidden_size / num_attention_heads : explicit_head_dim;
  }
  std::int64_t query_width() const { return num_attention_heads * head_dim(); }  ///< H·D
  std::int64_t kv_width() const { return effective_kv_heads() * head_dim(); }    ///< G·D
  /// @throws InputError naming the field and what it must be.
  void validate() const;
  /// Parameters by closed form; tied embeddings counted once.
  std::int64_t parameter_count() const;

  static TransformerConfig nano();        ///< V 31, d 16, L 2, H 2, F 40, T 8: for tests
  static TransformerConfig tiny();        ///< V 256, d 128, L 4, H 4, F 352, T 128
  static TransformerConfig small();       ///< V 256, d 384, L 6, H 6, F 1024, T 256
  static TransformerConfig llama_124m();  ///< V 50304, d 768, L 12, H 12, F 2048, T 1024, tied
  static TransformerConfig llama_2b();    ///< V 50304, d 1600, L 48, H 25, F 6400, T 1024: 2.1e9
  // The models that torchtitan tests itself with: T 2048, d 256, H 16, F 768, V 2048.
  static TransformerConfig llama2_debug();  ///< L 8
  static TransformerConfig llama3_debug();  ///< L 6, and the rotary base of Llama 3
  // Published models, as their config.json has them. Source: the meta-llama repositories of
  // Hugging Face (Llama-2-7b-hf, …, Meta-Llama-3-8B, …, Llama-3.1-405B).
  static TransformerConfig llama2_7b();
  static TransformerConfig llama2_13b();
  static TransformerConfig llama2_70b();
  static TransformerConfig llama3_8b();
  static TransformerConfig llama3_70b();
  static TransformerConfig llama3_405b();  ///< Llama 3.1: T 131072, scaled rotary positions
};

/// Those models by name, "llama2_7b".
const std::map<std::string, TransformerConfig>& model_presets();

/// What the head of a model is called as a unit: it has no path of its own.
inline constexpr const char* kHeadName = "model.norm+lm_head";

}  // namespace fsdp::nn
