// config.json: the fields of Hugging Face's LlamaConfig, both ways.
#include "base/check.h"
#include "io/file_io.h"
#include "io/hf_folder.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace fsdp::io {
namespace {

using nlohmann::json;

// One config.json being read: every complaint names the file.
class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& path) : path_(path) {
    try {
      root_ = json::parse(read_text(path));
    } catch (const json::exception& error) {
      complain(fmt::format("is not JSON ({})", error.what()));
    }
    if (!root_.is_object()) complain("is not a JSON object");
  }

  [[noreturn]] void complain(const std::string& what) const {
    throw InputError(fmt::format("{}: {}", path_.string(), what));
  }

  // Absent and null mean the same to Hugging Face.
  const json* find(const char* field) const {
    const auto found = root_.find(field);
    return found == root_.end() || found->is_null() ? nullptr : &*found;
  }

  template <class T>
  T required(const char* field) const {
    const json* value = find(field);
    if (value == nullptr) complain(fmt::format("lacks \"{}\"", field));
    return convert<T>(field, *value);
  }

  template <class T>
  T optional(const char* field, T fallback) const {
    const json* value = find(field);
    return value == nullptr ? fallback : convert<T>(field, *value);
  }

  // A field with one value this architecture can have.
  template <class T>
  void only(const char* field, const T& value) const {
    const json* found = find(field);
    if (found != nullptr && *found != json(value)) {
      complain(fmt::format("\"{}\" is {}, only {} is supported", field, found->dump(),
                           json(value).dump()));
    }
  }

 private:
  template <class T>
  T convert(const char* field, const json& value) const {
    const bool fits = std::is_same_v<T, bool>       ? value.is_boolean()
                      : std::is_floating_point_v<T> ? value.is_number()
                                                    : value.is_number_integer();
    if (!fits)
      complain(fmt::format("\"{}\" is {}, which is of the wrong type", field, value.dump()));
    return value.get<T>();
  }

  std::filesystem::path path_;
  json root_;
};

// transformers 4 writes rope_theta at the top, transformers 5 inside rope_parameters.
double read_rope_theta(const ConfigFile& file) {
  if (file.find("rope_scaling") != nullptr) {
    const json& scaling = *file.find("rope_scaling");
    if (scaling.is_object() && scaling.value("rope_type", scaling.value("type", "default")) !=
                                   std::string_view("default")) {
      file.complain(fmt::format("\"rope_scaling\" is {}, only null is supported", scaling.dump()));
    }
  }
  double theta = file.optional("rope_theta", 10000.0);
  if (const json* parameters = file.find("rope_parameters")) {
    if (!parameters->is_object() || parameters->value("rope_type", "default") != "default" ||
        parameters->value("partial_rotary_factor", 1.0) != 1.0) {
      file.complain(
          fmt::format("\"rope_parameters\" is {}, only rope_type \"default\" over the "
                      "whole head is supported",
                      parameters->dump()));
    }
    theta = parameters->value("rope_theta", theta);
  }
  return theta;
}

}  // namespace

std::string to_hf_config(const nn::TransformerConfig& config) {
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
  out["rope_scaling"] = nullptr;
  out["hidden_act"] = "silu";
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["mlp_bias"] = false;
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["initializer_range"] = config.initializer_range;
  out["bos_token_id"] = nullptr;
  out["eos_token_id"] = nullptr;
  out["pad_token_id"] = nullptr;
  out["torch_dtype"] = "float32";
  out["use_cache"] = true;
  return out.dump(2) + "\n";
}

nn::TransformerConfig read_hf_config(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.only("model_type", "llama");
  file.only("hidden_act", "silu");
  file.only("attention_bias", false);
  file.only("mlp_bias", false);
  nn::TransformerConfig config;
  config.vocab_size = file.required<std::int64_t>("vocab_size");
  config.hidden_size = file.required<std::int64_t>("hidden_size");
  config.intermediate_size = file.required<std::int64_t>("intermediate_size");
  config.num_hidden_layers = file.required<std::int64_t>("num_hidden_layers");
  config.num_attention_heads = file.required<int>("num_attention_heads");
  config.num_key_value_heads =
      file.optional<int>("num_key_value_heads", config.num_attention_heads);
  if (config.num_key_value_heads == config.num_attention_heads) config.num_key_value_heads = 0;
  config.max_position_embeddings = file.optional<std::int64_t>("max_position_embeddings", 2048);
  config.rms_norm_eps = file.optional("rms_norm_eps", 1e-6);
  config.rope_theta = read_rope_theta(file);
  config.tie_word_embeddings = file.optional("tie_word_embeddings", false);
  config.initializer_range = file.optional("initializer_range", 0.02);
  try {
    config.validate();
  } catch (const InputError& error) {
    file.complain(error.what());
  }
  file.only("head_dim", config.head_dim());
  return config;
}

}  // namespace fsdp::io
