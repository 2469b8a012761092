/// @file
/// @ingroup io
/// JSON that other programs wrote. All of it is read here.
#pragma once

#include "base/check.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::io {

/// JSON that is nested deeper is refused: copying, comparing or printing a value takes one call per
/// level, and the stack ends somewhere. No format that is read here needs ten.
inline constexpr std::size_t kDeepestJson = 64;

/// What is wrong with a text as JSON, as the rest of a sentence: "is not JSON from byte 7 on".
class JsonError : public InputError {
 public:
  JsonError(const std::string& what, std::size_t at, int its_line)
      : InputError(what), byte(at), line(its_line) {}
  std::size_t byte;  ///< where the text ceases to be JSON, from 0 on; npos: it is JSON, but refused
  int line;          ///< from 1 on; where the parser noticed
};

/// Called for each key of an object, with the keys around it and the line on which it ends.
using OnJsonKey = std::function<void(const std::vector<std::string>& path, int line)>;

/// The value that a text stands for. The second keeps the order of keys.
/// @param before bytes that come before the text in its file, for the message
/// @throws JsonError if it is no JSON, has a number beyond all bounds, is nested too deep, or if an
/// object has a key twice: a parser would silently keep the last. Its message repeats nothing of
/// the text but that key.
nlohmann::json parse_json(std::string_view text, std::size_t before = 0);
nlohmann::ordered_json parse_ordered_json(std::string_view text, const OnJsonKey& on_key);

/// The JSON object in a file of at most 64 MiB.
/// @throws InputError naming the file if it cannot be read, is not a JSON object, or as parse_json.
nlohmann::json read_json_object(const std::filesystem::path& path);

/// A value that was read, as it may stand in a message (see printable()).
std::string shown(const nlohmann::json& value);

}  // namespace fsdp::io
