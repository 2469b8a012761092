/// @file
/// @ingroup nn
/// Full models as folders that Hugging Face's `LlamaForCausalLM.from_pretrained` loads, and back.
#pragma once

#include "nn/transformer.h"

#include <filesystem>
#include <string>

namespace fsdp::nn {

/// The text of `config.json` for a model (architectures, hidden_size, rope_theta, …).
std::string to_hf_config(const TransformerConfig& config);
/// Reads `config.json`. @throws InputError naming file, field and remedy, for anything this model is not.
TransformerConfig read_hf_config(const std::filesystem::path& file);

/// Writes `model.safetensors` and `config.json` of a whole (not sharded) model into a folder that
/// appears atomically. Tied weights are written once, as Hugging Face does.
void save_hf_folder(TransformerLM& model, const std::filesystem::path& folder);
/// Fills a whole model from `model.safetensors`; every parameter must be there with its shape.
/// Nothing is changed unless all of it fits.
void load_hf_folder(TransformerLM& model, const std::filesystem::path& folder);

}  // namespace fsdp::nn
