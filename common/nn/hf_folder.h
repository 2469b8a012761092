/// @file
/// @ingroup nn
/// Full models as folders that Hugging Face's `LlamaForCausalLM.from_pretrained` loads, and back.
#pragma once

#include "nn/safetensors.h"
#include "nn/transformer.h"

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::nn {

/// The text of `config.json` for a model (architectures, hidden_size, rope_theta, …).
std::string to_hf_config(const TransformerConfig& config);
/// Reads `config.json`. @throws InputError naming file, field and remedy, for anything this model
/// is not: a field of a kind that changes what the model computes is never passed over.
TransformerConfig read_hf_config(const std::filesystem::path& file);

/// Writes `model.safetensors` and `config.json` of a whole (not sharded) model into a folder that
/// appears atomically, in place of nothing that is not ours (output_folder.h). Tied weights are
/// written once, as Hugging Face does.
void save_hf_folder(TransformerLM& model, const std::filesystem::path& folder);
/// The same two files into a folder that is there; a checkpoint that has more in it publishes
/// itself.
void write_hf_files(TransformerLM& model, const std::filesystem::path& folder);
/// Fills a whole model from `model.safetensors`; every parameter must be there with its shape.
/// Nothing is changed unless all of it fits.
void load_hf_folder(TransformerLM& model, const std::filesystem::path& folder);

/// Checks that `reader` holds exactly these parameters, each with its dtype and shape. A tensor
/// that the model would not read is an error, unless it follows from the rest: rotary tables
/// and the head of tied embeddings. @throws InputError naming file and tensor.
void check_hf_parameters(const SafetensorsReader& reader,
                         const std::vector<NamedParameter>& parameters);

}  // namespace fsdp::nn
