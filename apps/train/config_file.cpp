// A configuration file, key by key.
#include "base/check.h"
#include "io/file_io.h"
#include "train/config_options.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

namespace fsdp::train {
namespace {

/// What a configuration is never longer than: /dev/zero has no end.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

void add_table(const toml::table& table, const std::string& prefix, const std::string& file,
               std::vector<FileValue>& values) {
  for (const auto& [name, node] : table) {
    const std::uint32_t line = node.source().begin.line;
    const std::string origin = fmt::format("{}:{}", file, line);
    // It would be the same key as the one written without quotes, and silently win or lose.
    if (name.str().find('.') != std::string_view::npos) {
      throw InputError(
          fmt::format("{}: \"{}\" is one name with a dot in it; write {} without quotes", origin,
                      plain(name.str()), plain(name.str())));
    }
    const std::string key = prefix + std::string(name.str());
    // A key is a section and a name: what is nested deeper is wrong, however deep it goes.
    const bool is_deep = std::count(prefix.begin(), prefix.end(), '.') > 2;
    const toml::table* section = node.as_table();
    const bool is_empty = section != nullptr && section->empty();
    if (section != nullptr && !is_empty && !is_deep) {
      add_table(*section, key + ".", file, values);
    } else {
      values.push_back({key, origin, line, text_of(node), node.is_string(), is_empty});
    }
  }
}

/// Line `number` of a text, from 1.
std::string_view line_of(std::string_view text, std::uint32_t number) {
  for (; number > 1 && !text.empty(); --number) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::vector<FileValue> values_of_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  const std::string text = io::read_text(file, kMostBytes);
  if (text.empty()) {
    throw InputError(name + ": is empty; write settings into it, or leave --config out");
  }
  std::vector<FileValue> values;
  try {
    add_table(toml::parse(text, name), "", name, values);
  } catch (const toml::parse_error& error) {
    const std::uint32_t line = error.source().begin.line;
    throw InputError(fmt::format("{}:{}: not TOML, at \"{}\": {}", name, line,
                                 plain(line_of(text, line)), std::string(error.description())));
  }
  std::stable_sort(values.begin(), values.end(),
                   [](const FileValue& a, const FileValue& b) { return a.line < b.line; });
  return values;
}

std::string plain(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown(text.substr(0, kShown));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c >= 0 && (c < 0x20 || c == 0x7F); }, '?');
  return text.size() > kShown ? shown + "..." : shown;
}

}  // namespace fsdp::train
