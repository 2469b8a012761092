#include "io/json_file.h"

#include "base/check.h"
#include "io/file_io.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace fsdp::io {

using nlohmann::json;

json read_json_object(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 26;
  const auto refuse = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}; copy or save it again", path.string(), what));
  };
  std::vector<std::set<std::string>> names;  // of the objects around the place being read
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  json object;
  try {
    object = json::parse(read_text(path, kMostBytes), watch);
  } catch (const json::parse_error& error) {
    // Not the parser's own words: they repeat what was read, which may be any bytes.
    refuse(fmt::format("is not JSON from byte {} on", error.byte));
  } catch (const json::exception&) {
    refuse("is not JSON: it holds a number beyond all bounds");
  }
  if (!object.is_object()) refuse("is not a JSON object");
  if (!twice.empty()) refuse(fmt::format("names \"{}\" twice", twice));
  return object;
}

}  // namespace fsdp::io
