// config.json: the fields of Hugging Face's LlamaConfig, both ways.
#include "base/check.h"
#include "base/printable.h"
#include "io/hf_folder.h"
#include "io/json_file.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp::io {
namespace {

using nlohmann::json;

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

// A JSON object of a config.json being read: every complaint names file and key.
class Fields {
 public:
  Fields(std::string file, std::string prefix, json object)
      : file_(std::move(file)), prefix_(std::move(prefix)), object_(std::move(object)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw InputError(fmt::format("{}: \"{}{}\" {}", file_, prefix_, printable(key), what));
  }
  [[noreturn]] void refuse_value(const std::string& key, const std::string& why) const {
    refuse(key, fmt::format("is {}, {}", shown(object_.at(key)), why));
  }

  // Absent and null mean the same to Hugging Face.
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  template <class T>
  std::optional<T> optional(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const bool is_real = std::is_floating_point_v<T>;
    const bool fits = std::is_same_v<T, bool> ? value->is_boolean()
                      : is_real               ? value->is_number()
                                              : value->is_number_integer();
    const char* wanted = std::is_same_v<T, bool> ? "true or false"
                         : is_real               ? "a number"
                                                 : "a whole number";
    if (!fits) refuse_value(key, fmt::format("which is of the wrong type; it must be {}", wanted));
    // What does not come back was beyond the type.
    if (json(value->get<T>()) != *value) refuse_value(key, "which is beyond all bounds");
    return value->get<T>();
  }

  template <class T>
  T required(const char* key) const {
    const std::optional<T> value = optional<T>(key);
    if (!value) {
      throw InputError(
          fmt::format("{}: lacks \"{}{}\"; add it, or copy the file again", file_, prefix_, key));
    }
    return *value;
  }

  // A key with one value that this architecture can have.
  void only(const char* key, const json& value) const {
    const json* found = find(key);
    if (found == nullptr || *found == value) return;
    refuse_value(key, fmt::format("but only {} is supported; use another model", shown(value)));
  }

  Fields section(const char* key) const {
    const json* found = find(key);
    if (found == nullptr) return {file_, "", json::object()};
    if (!found->is_object()) refuse_value(key, "which must be a JSON object or null");
    return {file_, prefix_ + key + ".", *found};
  }

  /// A key that is not known goes to `unknown`; if that is null, it is refused.
  template <class IsKnown>
  void refuse_others(IsKnown&& is_known, std::vector<std::string>* unknown = nullptr) const {
    for (const auto& [key, value] : object_.items()) {
      if (value.is_null() || is_known(key)) continue;
      for (const auto& [name, why] : kRefused) {
        if (name == key) refuse(key, fmt::format("is not supported: {}", why));
      }
      if (unknown != nullptr) {
        unknown->push_back(key);
        continue;
      }
      refuse_value(key,
                   "a key that is not known here; if it does not change what the model computes, "
                   "remove it from the file, otherwise use another model");
    }
  }

  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::string prefix_;  // "rope_parameters."
  json object_;
};

std::vector<std::string> words_of(const char* list) {
  std::istringstream words(list);
  using Words = std::istream_iterator<std::string>;
  return {Words(words), Words()};
}

bool is_known(const std::string& key) {
  return std::ranges::any_of(hf_keys(), [&](const HfKey& each) {
    return each.name == key && each.use != HfKey::Use::refused;
  });
}

/// @return whether it is a Mistral: a Llama with a sliding window
bool read_architecture(const Fields& file) {
  const json* type = file.find("model_type");
  const json* classes = file.find("architectures");
  const bool is_mistral = type != nullptr
                              ? *type == "mistral"
                              : classes != nullptr && *classes == json{"MistralForCausalLM"};
  file.only("model_type", is_mistral ? "mistral" : "llama");
  const bool is_old = classes != nullptr && *classes == json{"LLaMAForCausalLM"};
  if (!is_old) {
    file.only("architectures", json{is_mistral ? "MistralForCausalLM" : "LlamaForCausalLM"});
  }
  return is_mistral;
}

// Within its window, a Mistral computes what a Llama does.
void limit_to_window(const Fields& file, nn::TransformerConfig& config, HfNotes* notes) {
  const auto window = file.optional<std::int64_t>("sliding_window");
  if (!window || *window >= config.max_position_embeddings) return;
  if (*window <= 0) file.refuse_value("sliding_window", "which must be positive");
  config.max_position_embeddings = *window;
  if (notes == nullptr) return;
  notes->others.push_back(
      fmt::format("sliding_window: is {}: sequences are at most that long here", *window));
}

bool is_llama3(const Fields& section) {
  std::optional<json> kind;
  for (const char* key : {"rope_type", "type"}) {  // "type" before transformers 4.45
    const json* found = section.find(key);
    if (found == nullptr) continue;
    if (*found != "default" && *found != "llama3") {
      section.refuse_value(key,
                           R"(but only "default" and "llama3" are supported; use another model)");
    }
    if (kind && *kind != *found) {
      section.refuse_value(
          key, fmt::format("but \"rope_type\" is {}; remove the wrong one", shown(*kind)));
    }
    kind = *found;
  }
  return kind == "llama3";
}

RopeScaling read_llama3(const Fields& section) {
  RopeScaling scaling{.factor = section.required<double>("factor"),
                      .low_freq_factor = section.required<double>("low_freq_factor"),
                      .high_freq_factor = section.required<double>("high_freq_factor"),
                      .original_max_position_embeddings =
                          section.required<std::int64_t>("original_max_position_embeddings")};
  const auto& [factor, low, high, original] = scaling;
  if (!(factor >= 1)) section.refuse_value("factor", "which must be at least 1");
  if (!(low > 0)) section.refuse_value("low_freq_factor", "which must be positive");
  if (!(high > low)) {
    section.refuse_value("high_freq_factor",
                         fmt::format("which must be more than low_freq_factor {}", low));
  }
  if (original <= 0)
    section.refuse_value("original_max_position_embeddings", "which must be positive");
  return scaling;
}

// transformers 4 writes rope_theta at the top, beside rope_scaling; transformers 5 writes all of it
// into rope_parameters.
void read_rope(const Fields& top, nn::TransformerConfig& config) {
  std::optional<double> theta = top.optional<double>("rope_theta");
  std::optional<RopeScaling> scaling;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (top.find(key) == nullptr) continue;
    const Fields section = top.section(key);
    const bool scales = is_llama3(section);
    section.only("partial_rotary_factor", 1);
    section.refuse_others([&](std::string_view name) {
      constexpr std::string_view kOfLlama3[] = {"factor", "low_freq_factor", "high_freq_factor",
                                                "original_max_position_embeddings"};
      return name == "rope_type" || name == "type" || name == "partial_rotary_factor" ||
             name == "rope_theta" || (scales && std::ranges::count(kOfLlama3, name) > 0);
    });
    const RopeScaling here = scales ? read_llama3(section) : RopeScaling();
    if (scaling && *scaling != here)
      top.refuse_value(key, "but \"rope_scaling\" says otherwise; remove the wrong one");
    scaling = here;
    const std::optional<double> inner = section.optional<double>("rope_theta");
    if (theta && inner && *theta != *inner) {
      section.refuse_value("rope_theta", fmt::format("but elsewhere in the file it is {}; remove "
                                                     "the wrong one",
                                                     *theta));
    }
    if (inner) theta = inner;
  }
  config.rope_theta = theta.value_or(10000);
  config.rope_scaling = scaling.value_or(RopeScaling());
}

nlohmann::ordered_json write_rope_scaling(const RopeScaling& scaling) {
  if (!scaling.is_on()) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
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

std::string to_hf_config(const nn::TransformerConfig& config, const HfExport& how) {
  nlohmann::ordered_json out;
  out["architectures"] = {"LlamaForCausalLM"};
  out["model_type"] = "llama";
  out["vocab_size"] = config.vocab_size;
  out["hidden_size"] = config.hidden_size;
  out["intermediate_size"] = config.intermediate_size;
  out["num_hidden_layers"] = config.num_hidden_layers;
  out["num_attention_heads"] = config.num_attention_heads;
  out["num_key_value_heads"] = config.effective_kv_heads();
  out["head_dim"] = config.head_dim();
  out["max_position_embeddings"] = config.max_position_embeddings;
  out["rms_norm_eps"] = config.rms_norm_eps;
  out["rope_theta"] = config.rope_theta;
  out["rope_scaling"] = write_rope_scaling(config.rope_scaling);
  out["hidden_act"] = "silu";
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["mlp_bias"] = false;
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["initializer_range"] = config.initializer_range;
  if (how.extras.folder.empty()) {  // no tokens are special; without the keys 1 and 2 would be
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) out[key] = nullptr;
    if (config.pad_token_id >= 0) out["pad_token_id"] = config.pad_token_id;
  }
  for (const auto& [key, value] : how.extras.config) out[key] = json::parse(value);
  // transformers 5 calls it "dtype", and reads both.
  out["torch_dtype"] = name_of(how.dtype.value_or(DType::float32));
  out["use_cache"] = true;
  return out.dump(2) + "\n";
}

nn::TransformerConfig read_hf_config(const std::filesystem::path& path, HfNotes* notes) {
  const Fields file(path.string(), "", read_json_object(path));
  const bool is_mistral = read_architecture(file);
  for (const auto& [key, value] : kFixed) file.only(key, json::parse(value));
  const auto has_meaning = [&](const std::string& key) {
    return is_known(key) && (is_mistral || key != "sliding_window");
  };
  file.refuse_others(has_meaning, notes == nullptr ? nullptr : &notes->unknown);
  if (file.find("model_type") == nullptr && file.find("architectures") == nullptr) {
    throw InputError(
        fmt::format("{}: has neither \"model_type\" nor \"architectures\", so it is not known to "
                    "be a Llama; add \"model_type\": \"llama\" if it is one",
                    file.file()));
  }
  nn::TransformerConfig config;
  config.vocab_size = file.required<std::int64_t>("vocab_size");
  config.hidden_size = file.required<std::int64_t>("hidden_size");
  config.intermediate_size = file.required<std::int64_t>("intermediate_size");
  config.num_hidden_layers = file.required<std::int64_t>("num_hidden_layers");
  config.num_attention_heads = file.required<int>("num_attention_heads");
  // What is left out of a Mistral stands for other values than in a Llama.
  const std::optional<int> kv_heads = is_mistral ? file.required<int>("num_key_value_heads")
                                                 : file.optional<int>("num_key_value_heads");
  if (kv_heads == 0) file.refuse_value("num_key_value_heads", "which must be positive");
  config.num_key_value_heads = kv_heads == config.num_attention_heads ? 0 : kv_heads.value_or(0);
  config.max_position_embeddings =
      is_mistral ? file.required<std::int64_t>("max_position_embeddings")
                 : file.optional<std::int64_t>("max_position_embeddings").value_or(2048);
  if (is_mistral) limit_to_window(file, config, notes);
  config.rms_norm_eps = file.optional<double>("rms_norm_eps").value_or(1e-6);
  read_rope(file, config);
  config.tie_word_embeddings = file.optional<bool>("tie_word_embeddings").value_or(false);
  config.initializer_range = file.optional<double>("initializer_range").value_or(0.02);
  config.pad_token_id =
      std::max<std::int64_t>(-1, file.optional<std::int64_t>("pad_token_id").value_or(-1));
  const auto head_dim = file.optional<std::int64_t>("head_dim");
  if (head_dim == 0) file.refuse_value("head_dim", "which must be positive");
  config.explicit_head_dim = head_dim.value_or(0);
  try {
    config.validate();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path.string(), error.what()));
  }
  // What follows from the other sizes is as if the file did not have it.
  if (config.query_width() == config.hidden_size) config.explicit_head_dim = 0;
  return config;
}

}  // namespace fsdp::io
