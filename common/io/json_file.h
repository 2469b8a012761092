/// @file
/// @ingroup io
/// JSON files that other programs wrote.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace fsdp::io {

/// The JSON object in a file of at most 64 MiB.
/// @throws InputError naming the file if it cannot be read or is not a JSON object, or if one of
/// its objects has a key twice: a parser would silently keep the last.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace fsdp::io
