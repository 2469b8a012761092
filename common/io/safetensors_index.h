/// @file
/// @ingroup io
/// The index of a model in several safetensors files (`model.safetensors.index.json`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace fsdp::io {

/// Its weight_map: for each tensor the name of its file, which is in the folder of the index.
/// @throws InputError naming the index and the tensor, if it has no such map, or if a file's name
/// leads to another folder.
std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& path);

struct SafetensorsIndex {
  std::map<std::string, std::string> weight_map;  ///< the file of each tensor
  std::uint64_t total_size = 0;                   ///< bytes of all tensors
  std::uint64_t total_parameters = 0;
};
/// Its text, as transformers writes it.
std::string make_safetensors_index(const SafetensorsIndex& index);

}  // namespace fsdp::io
