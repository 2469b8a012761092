/// @file
/// @ingroup io
/// Full models as folders that Hugging Face's `LlamaForCausalLM.from_pretrained` loads, and back.
#pragma once

#include "io/safetensors.h"
#include "nn/transformer.h"

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::io {

/// The text of `config.json` for a model (architectures, hidden_size, rope_theta, …).
std::string to_hf_config(const nn::TransformerConfig& config);
/// Reads `config.json`. @throws InputError naming file, key and remedy if the file describes
/// another model, or has a key that is not known: no key that may change what a model computes is
/// ignored.
nn::TransformerConfig read_hf_config(const std::filesystem::path& path);

/// Writes `model.safetensors` and `config.json` of a whole (not sharded) model into a folder that
/// appears atomically and never replaces what is not ours (output_folder.h). Tied weights are
/// written once, as Hugging Face does.
void save_hf_folder(nn::TransformerLM& model, const std::filesystem::path& folder);
/// Writes the same two files into an existing folder, which the caller publishes.
void write_hf_files(nn::TransformerLM& model, const std::filesystem::path& folder);
/// Fills a whole model from `model.safetensors`, or the files that its index lists; in float32,
/// bfloat16 or float16. Every parameter must be there, with its shape; otherwise nothing changes.
void load_hf_folder(nn::TransformerLM& model, const std::filesystem::path& folder);

/// Checks that `reader` holds exactly these parameters, each with its dtype and shape, and no other
/// tensors (except those that follow from the rest: rotary tables, and a head of tied embeddings
/// that has the embedding's bits). @throws InputError naming file and tensor.
void check_hf_parameters(const SafetensorsReader& reader,
                         const std::vector<nn::NamedParameter>& parameters);

}  // namespace fsdp::io
