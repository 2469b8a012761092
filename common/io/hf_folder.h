/// @file
/// @ingroup io
/// Full models as folders that Hugging Face's `LlamaForCausalLM.from_pretrained` loads, and back.
#pragma once

#include "io/safetensors.h"
#include "nn/transformer.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::io {

/// What belongs to a model in a folder beside its sizes and weights.
struct HfExtras {
  std::filesystem::path folder;               ///< empty = the model comes from no folder
  std::vector<std::string> files;             ///< tokenizer and generation_config.json
  std::map<std::string, std::string> config;  ///< of config.json, as JSON: bos_token_id, …
};
/// Those of a folder. It reads `config.json` only.
HfExtras find_hf_extras(const std::filesystem::path& folder);

/// How a model is written.
struct HfExport {
  std::optional<DType> dtype = {};   ///< of the weights in the files; none: their own
  std::uint64_t max_shard_size = 0;  ///< bytes of the tensors in one file; 0 = all in one file
  HfExtras extras = {};              ///< go with it
};

/// The text of `config.json` for a model (architectures, hidden_size, rope_theta, …).
std::string to_hf_config(const nn::TransformerConfig& config, const HfExport& how = {});
/// A key of `config.json` that is known here.
struct HfKey {
  enum class Use {
    read,       ///< sets a size of the model
    fixed,      ///< has one value; `detail` as JSON
    no_effect,  ///< changes nothing of what the model computes
    refused     ///< has none; `detail` why, and the remedy
  } use;
  std::string name;
  std::string detail = {};
};
const std::vector<HfKey>& hf_keys();

/// What a reader of `config.json` passes over.
struct HfNotes {
  std::vector<std::string> no_effect;  ///< keys that change nothing of what the model computes
  std::vector<std::string> unknown;    ///< keys that transformers ignores, too
  std::vector<std::string> others;     ///< sentences that begin with the key
};

/// Reads `config.json` of a Llama, or of a Mistral, which is one with sequences up to its sliding
/// window.
/// @throws InputError naming file, key and remedy if the file describes another model, or (without
/// `notes`) has a key that is not known
nn::TransformerConfig read_hf_config(const std::filesystem::path& path, HfNotes* notes = nullptr);

/// Writes a whole (not sharded) model into a folder that appears atomically and never replaces what
/// is not ours (output_folder.h). Tied weights are written once, as Hugging Face does.
void save_hf_folder(nn::TransformerLM& model, const std::filesystem::path& folder,
                    HfExport how = {});
/// The weights of a folder: `model.safetensors`, or the files that its index lists.
/// @throws InputError naming what is there in their place (weights of pickle, an adapter), and how
/// to convert it
SafetensorsReader open_hf_weights(const std::filesystem::path& folder);

/// Fills a whole model from `model.safetensors`, or the files that its index lists; in float32,
/// bfloat16 or float16. Every parameter must be there, with its shape; otherwise nothing changes.
/// The adapters of LoRA are not part of it, and stay as they are.
/// @param place_of where a parameter's values go; by default, into its data
void load_hf_folder(nn::TransformerLM& model, const std::filesystem::path& folder,
                    const std::function<Tensor(const Variable&)>& place_of = &Variable::data);

/// Checks that `reader` holds exactly these parameters, each with its shape and in its dtype or, if
/// that has 16 bits, in float32. It may hold no other tensors, except those that follow from the
/// rest: rotary tables, and a head of tied embeddings that has the embedding's bits.
/// @throws InputError naming file and tensor.
void check_hf_parameters(const SafetensorsReader& reader,
                         const std::vector<nn::NamedParameter>& parameters);

}  // namespace fsdp::io
