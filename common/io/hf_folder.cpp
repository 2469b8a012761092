#include "io/hf_folder.h"

#include "base/check.h"
#include "io/file_io.h"
#include "io/output_folder.h"
#include "io/safetensors.h"

#include <set>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kConfig = "config.json";

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// Tied embeddings may carry the head a second time. Another one would mean another model.
void check_tied_head(const SafetensorsReader& reader) {
  if (!reader.contains(kHead) || reader.are_equal(kHead, kEmbedding)) return;
  throw InputError(
      fmt::format("{}: tensor \"{}\" differs from \"{}\", but the model's configuration ties them; "
                  "set \"tie_word_embeddings\" to false in its config.json, or remove the tensor",
                  reader.path().string(), kHead, kEmbedding));
}

}  // namespace

void check_hf_parameters(const SafetensorsReader& reader,
                         const std::vector<nn::NamedParameter>& parameters) {
  std::set<std::string> wanted;
  for (const nn::NamedParameter& parameter : parameters) {
    const Variable& variable = parameter.variable;
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
                    reader.path().string(), name));
  }
}

void write_hf_files(nn::TransformerLM& model, const fs::path& folder) {
  const std::vector<nn::NamedParameter> parameters = model.named_parameters();
  std::vector<SafetensorsWriter::Item> items;
  for (const nn::NamedParameter& parameter : parameters) {
    const Tensor& data = parameter.variable.data();
    items.push_back({parameter.path, data.dtype(), data.shape()});
  }
  // transformers refuses a file that does not say which framework's layout it has.
  SafetensorsWriter writer(folder / kWeights, std::move(items), {{"format", "pt"}});
  for (const nn::NamedParameter& parameter : parameters) writer.write(parameter.variable.data());
  writer.finish();
  write_text_atomically(folder / kConfig, to_hf_config(model.config()));
}

void save_hf_folder(nn::TransformerLM& model, const fs::path& folder) {
  const fs::path temporary = begin_folder(folder);
  write_hf_files(model, temporary);
  publish_folder(temporary, folder);
}

void load_hf_folder(nn::TransformerLM& model, const fs::path& folder) {
  const SafetensorsReader reader(existing_folder(folder) / kWeights);
  const std::vector<nn::NamedParameter> parameters = model.named_parameters();
  check_hf_parameters(reader, parameters);
  for (const nn::NamedParameter& parameter : parameters) {
    reader.read(parameter.path, parameter.variable.data());
  }
}

}  // namespace fsdp::io
