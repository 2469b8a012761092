#include "io/hf_folder.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/hf_folder_writer.h"
#include "io/json_file.h"
#include "io/output_folder.h"
#include "io/safetensors.h"
#include "nn/lora.h"

#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";

constexpr const char* kHead = "lm_head.weight";
// What wrappers put before the names of a model's parameters.
constexpr const char* kWrappers[] = {"module.", "_orig_mod.", "_fsdp_wrapped_module.",
                                     "base_model.model."};
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// What AutoTokenizer and generate() read.
constexpr const char* kExtraFiles[] = {
    "generation_config.json",  "tokenizer.json",    "tokenizer.model", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json",      "merges.txt",
    "chat_template.jinja"};
constexpr const char* kExtraKeys[] = {"bos_token_id", "eos_token_id", "pad_token_id",
                                      "tokenizer_class"};

// Tied embeddings may carry the head a second time. Another one would mean another model.
void check_tied_head(const SafetensorsReader& reader) {
  if (!reader.contains(kHead) || reader.are_equal(kHead, kEmbedding)) return;
  throw InputError(
      fmt::format("{}: tensor \"{}\" differs from \"{}\", but the model's configuration ties them; "
                  "set \"tie_word_embeddings\" to false in its config.json, or remove the tensor",
                  reader.path().string(), kHead, kEmbedding));
}

// What a file without this parameter most likely is.
void explain_absence(const SafetensorsReader& reader, const std::string& path) {
  if (reader.contains(path)) return;
  for (const char* wrapper : kWrappers) {
    const std::string name = wrapper + path;
    if (!reader.contains(name)) continue;
    throw InputError(fmt::format(
        "{}: its names begin with \"{}\", as in \"{}\": it was saved from a wrapped "
        "model; save the model inside (unwrapped.save_pretrained), or remove the prefix",
        reader.path().string(), wrapper, name));
  }
  if (path == kHead && reader.contains(kEmbedding)) {
    throw InputError(
        fmt::format("{}: has no \"{}\", so the head is the embedding; set \"tie_word_embeddings\" "
                    "to true in its config.json",
                    reader.path().string(), kHead));
  }
}

}  // namespace

SafetensorsReader open_hf_weights(const fs::path& folder) {
  const fs::path there = existing_folder(folder);
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return fs::exists(there / name, ignored);
  };
  if (!has(kWeights) && !has("model.safetensors.index.json")) {
    for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (!has(pickle)) continue;
      throw InputError(fmt::format(
          "{}: has its weights in {} alone, which may run any code; convert them to safetensors: "
          "transformers' from_pretrained(\"{}\").save_pretrained(NEW_FOLDER) writes them so",
          there.string(), pickle, there.string()));
    }
  }
  return SafetensorsReader(there / kWeights);
}

void check_hf_parameters(const SafetensorsReader& reader,
                         const std::vector<nn::NamedParameter>& parameters) {
  std::set<std::string> wanted;
  for (const nn::NamedParameter& parameter : parameters) {
    const Variable& variable = parameter.variable;
    explain_absence(reader, parameter.path);
    reader.require(parameter.path, wide_of(variable.data().dtype()), variable.shape());
    wanted.insert(parameter.path);
  }
  const bool is_tied = wanted.contains(kEmbedding) && !wanted.contains(kHead);
  if (is_tied) check_tied_head(reader);
  for (const auto& [name, entry] : reader.entries()) {
    if (wanted.contains(name) || (is_tied && name == kHead)) continue;
    if (name.ends_with("rotary_emb.inv_freq")) continue;  // old tables; rope_theta gives them
    throw InputError(
        fmt::format("{}: tensor \"{}\" is not part of the model; it was saved from another model",
                    reader.path().string(), printable(name)));
  }
}

HfExtras find_hf_extras(const fs::path& folder) {
  HfExtras extras;
  extras.folder = folder;
  for (const char* name : kExtraFiles) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / name, ignored)) extras.files.emplace_back(name);
  }
  const nlohmann::json config = read_json_object(folder / "config.json");
  for (const char* key : kExtraKeys) {
    if (config.contains(key)) extras.config[key] = config.at(key).dump();
  }
  return extras;
}

void save_hf_folder(nn::TransformerLM& model, const fs::path& folder, HfExport how) {
  const std::vector<nn::NamedParameter> parameters = model.named_parameters();
  HfFolderWriter writer(folder, model.config(), parameters, std::move(how));
  for (const nn::NamedParameter& each : parameters) writer.write(each.path, each.variable.data());
  writer.publish();
}

void load_hf_folder(nn::TransformerLM& model, const fs::path& folder,
                    const std::function<Tensor(const Variable&)>& place_of) {
  const SafetensorsReader reader = open_hf_weights(folder);
  const std::vector<nn::NamedParameter> parameters = nn::without_lora(model.named_parameters());
  check_hf_parameters(reader, parameters);
  for (const nn::NamedParameter& parameter : parameters) {
    reader.read(parameter.path, place_of(parameter.variable));
  }
}

}  // namespace fsdp::io
