#include "io/safetensors_index.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fsdp::io {

std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& path) {
  const nlohmann::json index = read_json_object(path);
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object() || found->empty()) {
    throw InputError(fmt::format(
        "{}: has no \"weight_map\" of tensors and files; copy or save it again", path.string()));
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, value] : found->items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    // Whoever wrote the index does not choose which other files are opened.
    if (name.find_first_of(std::string("/\\\0", 3)) != std::string::npos || name.empty() ||
        name == "." || name == "..") {
      throw InputError(fmt::format(
          "{}: tensor \"{}\" is listed in {}, which is not the name of a file in the same folder; "
          "copy or save the index again",
          path.string(), printable(tensor), shown(value)));
    }
    weight_map[tensor] = name;
  }
  return weight_map;
}

std::string make_safetensors_index(const SafetensorsIndex& index) {
  const nlohmann::json text = {
      {"metadata",
       {{"total_parameters", index.total_parameters}, {"total_size", index.total_size}}},
      {"weight_map", index.weight_map}};
  return text.dump(2) + "\n";
}

}  // namespace fsdp::io
