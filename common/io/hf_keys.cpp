// The keys of Hugging Face's config.json.
#include "io/hf_folder.h"

#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace fsdp::io {
namespace {

// Every key of config.json that is known is in one of these four lists.

// Read into the TransformerConfig.
constexpr const char* kRead = R"(
    vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads max_position_embeddings rms_norm_eps head_dim rope_theta rope_scaling
    rope_parameters tie_word_embeddings initializer_range pad_token_id model_type architectures
    sliding_window)";

// Can have one value, which follows as JSON.
constexpr std::pair<const char*, const char*> kFixed[] = {{"hidden_act", R"("silu")"},
                                                          {"attention_bias", "false"},
                                                          {"mlp_bias", "false"},
                                                          {"attention_dropout", "0"},
                                                          {"pretraining_tp", "1"},
                                                          {"partial_rotary_factor", "1"},
                                                          {"rope_interleaved", "false"},
                                                          {"use_sliding_window", "false"},
                                                          {"is_encoder_decoder", "false"},
                                                          {"add_cross_attention", "false"},
                                                          {"tie_encoder_decoder", "false"},
                                                          {"chunk_size_feed_forward", "0"},
                                                          {"pruned_heads", "{}"}};

// Do not change what the model computes: special tokens, how to generate text, names and formats.
constexpr const char* kNoEffect = R"(
    bos_token_id eos_token_id sep_token_id unk_token_id decoder_start_token_id
    forced_bos_token_id forced_eos_token_id bad_words_ids suppress_tokens begin_suppress_tokens
    prefix tokenizer_class do_sample temperature top_k top_p typical_p max_length min_length
    repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size exponential_decay_length_penalty early_stopping num_beams
    num_beam_groups num_return_sequences remove_invalid_values use_cache return_dict
    return_dict_in_generate output_attentions output_hidden_states output_scores dtype
    torch_dtype transformers_version transformers.js_config _name_or_path _model_name_or_path
    _commit_hash _attn_implementation _attn_implementation_autoset unsloth_fixed unsloth_version
    is_decoder is_llama_config torchscript tf_legacy_loss use_bfloat16 id2label label2id
    num_labels problem_type finetuning_task task_specific_params)";

// Known to change it, with the reason and the remedy.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"quantization_config",
     "the weights are quantized; use the model's float32, bfloat16 or float16 weights"},
    {"compression_config",
     "the weights are compressed; use the model's float32, bfloat16 or float16 weights"},
    {"auto_map", "the model has Python code of its own; use one without"}};

std::vector<std::string> words_of(const char* list) {
  std::istringstream words(list);
  using Words = std::istream_iterator<std::string>;
  return {Words(words), Words()};
}

}  // namespace

const std::vector<HfKey>& hf_keys() {
  static const std::vector<HfKey> all = [] {
    using Use = HfKey::Use;
    std::vector<HfKey> keys;
    for (const std::string& name : words_of(kRead)) keys.push_back({Use::read, name});
    for (const auto& [name, value] : kFixed) keys.push_back({Use::fixed, name, value});
    for (const std::string& name : words_of(kNoEffect)) keys.push_back({Use::no_effect, name});
    for (const auto& [name, why] : kRefused) keys.push_back({Use::refused, name, why});
    return keys;
  }();
  return all;
}

}  // namespace fsdp::io
