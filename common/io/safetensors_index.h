/// @file
/// @ingroup io
/// The index of a model in several safetensors files (`model.safetensors.index.json`).
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace fsdp::io {

/// Its weight_map: for each tensor the name of its file, which is in the folder of the index.
/// @throws InputError naming the index and the tensor, if it has no such map, or if a file's name
/// leads to another folder.
std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& path);

}  // namespace fsdp::io
