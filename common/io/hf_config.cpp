// config.json: the fields of Hugging Face's LlamaConfig, both ways.
#include "base/check.h"
#include "base/printable.h"
#include "io/hf_folder.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp::io {
namespace {

using nlohmann::json;

std::optional<HfKey::Use> use_of(const std::string& key) {
  const auto found = std::ranges::find(hf_keys(), key, &HfKey::name);
  return found == hf_keys().end() ? std::nullopt : std::optional(found->use);
}

// What is wrong with a file, so that a user learns of all of it at once.
class Problems {
 public:
  template <class Read>
  void collect(Read&& read) {
    try {
      read();
    } catch (const InputError& error) {
      found_.emplace_back(error.what());
    }
  }
  void check() const {
    constexpr std::size_t kMost = 20;
    const auto first = std::span(found_).first(std::min(found_.size(), kMost));
    if (!first.empty()) throw InputError(fmt::format("{}", fmt::join(first, "\n")));
  }

 private:
  std::vector<std::string> found_;
};

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
  void refuse_others(IsKnown&& is_known, Problems& problems,
                     std::vector<std::string>* unknown = nullptr) const {
    for (const auto& [key, value] : object_.items()) {
      if (value.is_null() || is_known(key)) continue;
      if (unknown != nullptr && use_of(key) != HfKey::Use::refused) {
        unknown->push_back(key);
      } else {
        problems.collect([&, &key = key] { refuse_unknown(key); });
      }
    }
  }

  const std::string& file() const { return file_; }

 private:
  [[noreturn]] void refuse_unknown(const std::string& key) const {
    for (const HfKey& each : hf_keys()) {
      const bool is_it = each.name == key && each.use == HfKey::Use::refused;
      if (is_it) refuse(key, fmt::format("is not supported: {}", each.detail));
    }
    refuse_value(key,
                 "a key that is not known here; if it does not change what the model computes, "
                 "remove it from the file, otherwise use another model");
  }

  std::string file_;
  std::string prefix_;  // "rope_parameters."
  json object_;
};

std::vector<std::string> keys_without_effect(const Fields& file) {
  std::vector<std::string> keys;
  for (const HfKey& each : hf_keys()) {
    const bool is_one = each.use == HfKey::Use::no_effect;
    if (is_one && file.find(each.name.c_str()) != nullptr) keys.push_back(each.name);
  }
  return keys;
}

/// @return whether it is a Mistral: a Llama with a sliding window
bool read_architecture(const Fields& file) {
  const json* type = file.find("model_type");
  const json* classes = file.find("architectures");
  const bool is_mistral = type != nullptr
                              ? *type == "mistral"
                              : classes != nullptr && *classes == json{"MistralForCausalLM"};
  if (type != nullptr && !is_mistral && *type != "llama") {
    file.refuse_value("model_type",
                      "but only \"llama\" and \"mistral\" are supported; use another model, or "
                      "estimate a Llama of its sizes, given as model.hidden_size and so on");
  }
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

// transformers makes an Embedding(padding_idx), which counts a negative one from the end.
std::int64_t read_padding(const Fields& file, std::int64_t vocabulary, HfNotes* notes) {
  const auto token = file.optional<std::int64_t>("pad_token_id");
  if (!token || *token >= 0) return token.value_or(-1);
  if (*token < -vocabulary) {
    file.refuse_value("pad_token_id",
                      fmt::format("which counts from the end of {} tokens; set it to null if "
                                  "there is no padding",
                                  vocabulary));
  }
  if (notes != nullptr) {
    notes->others.push_back(fmt::format(
        "pad_token_id: is {}, which counts from the end, as in PyTorch's Embedding: token {} is "
        "padding; set it to null if there is none",
        *token, vocabulary + *token));
  }
  return vocabulary + *token;
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
    const auto is_of_rope = [&](std::string_view name) {
      constexpr std::string_view kOfLlama3[] = {"factor", "low_freq_factor", "high_freq_factor",
                                                "original_max_position_embeddings"};
      return name == "rope_type" || name == "type" || name == "partial_rotary_factor" ||
             name == "rope_theta" || (scales && std::ranges::count(kOfLlama3, name) > 0);
    };
    Problems problems;
    section.refuse_others(is_of_rope, problems);
    problems.check();
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
  Problems problems;
  for (const HfKey& each : hf_keys()) {
    if (each.use != HfKey::Use::fixed) continue;
    problems.collect([&] { file.only(each.name.c_str(), json::parse(each.detail)); });
  }
  const auto has_meaning = [&](const std::string& key) {
    const std::optional<HfKey::Use> use = use_of(key);
    return use && use != HfKey::Use::refused && (is_mistral || key != "sliding_window");
  };
  file.refuse_others(has_meaning, problems, notes == nullptr ? nullptr : &notes->unknown);
  problems.collect([&] {
    if (file.find("model_type") != nullptr || file.find("architectures") != nullptr) return;
    throw InputError(
        fmt::format("{}: has neither \"model_type\" nor \"architectures\", so it is not known to "
                    "be a Llama; add \"model_type\": \"llama\" if it is one",
                    file.file()));
  });
  if (notes != nullptr) notes->no_effect = keys_without_effect(file);
  nn::TransformerConfig config;
  const auto need = [&]<class T>(const char* key, T& to) {
    problems.collect([&] { to = file.required<T>(key); });
  };
  const auto take = [&]<class T>(const char* key, T& to, T fallback) {
    problems.collect([&] { to = file.optional<T>(key).value_or(fallback); });
  };
  need("vocab_size", config.vocab_size);
  need("hidden_size", config.hidden_size);
  need("intermediate_size", config.intermediate_size);
  need("num_hidden_layers", config.num_hidden_layers);
  need("num_attention_heads", config.num_attention_heads);
  problems.collect([&] {
    // What is left out of a Mistral stands for other values than in a Llama.
    const std::optional<int> kv_heads = is_mistral ? file.required<int>("num_key_value_heads")
                                                   : file.optional<int>("num_key_value_heads");
    if (kv_heads == 0) file.refuse_value("num_key_value_heads", "which must be positive");
    config.num_key_value_heads = kv_heads == config.num_attention_heads ? 0 : kv_heads.value_or(0);
  });
  if (is_mistral) {
    need("max_position_embeddings", config.max_position_embeddings);
    problems.collect([&] { limit_to_window(file, config, notes); });
  } else {
    take("max_position_embeddings", config.max_position_embeddings, std::int64_t{2048});
  }
  take("rms_norm_eps", config.rms_norm_eps, 1e-6);
  problems.collect([&] { read_rope(file, config); });
  take("tie_word_embeddings", config.tie_word_embeddings, false);
  take("initializer_range", config.initializer_range, 0.02);
  problems.collect([&] { config.pad_token_id = read_padding(file, config.vocab_size, notes); });
  problems.collect([&] {
    const auto head_dim = file.optional<std::int64_t>("head_dim");
    if (head_dim == 0) file.refuse_value("head_dim", "which must be positive");
    config.explicit_head_dim = head_dim.value_or(0);
  });
  problems.check();
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
