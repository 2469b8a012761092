// What a user wrote in a file and on the command line, setting by setting, right or wrong.
#include "base/check.h"
#include "base/printable.h"
#include "config/keys.h"
#include "io/file_io.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace fsdp::config {
namespace {

// No configuration is longer. /dev/zero has no end, and in a longer file tables can be nested so
// deep that toml++ overflows the stack.
constexpr std::size_t kMostBytes = std::size_t{1} << 16;

toml::table parse(const std::string& text, const std::string& file) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && text[begin] == '{') {  // no TOML begins so
    throw InputError(file +
                     ": is JSON, not TOML; give a DeepSpeed configuration with --deepspeed, and "
                     "the folder of a model's config.json with --model.from");
  }
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    refuse_yaml(text, file);
    const std::uint32_t number = error.source().begin.line;
    std::istringstream lines(text);
    std::string line;
    for (std::uint32_t i = 0; i < number; ++i) std::getline(lines, line);
    throw InputError(fmt::format("{}:{}: not TOML, at \"{}\": {}", file, number, printable(line),
                                 std::string(error.description())));
  }
}

// No whole number looks like it: 1.0 is "1.0".
std::string shortest(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

// "name:" or "name: value".
bool is_yaml_pair(const std::string& line) {
  const std::size_t colon = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
  if (colon == std::string::npos || colon == 0 || line[colon] != ':') return false;
  return colon + 1 == line.size() || line[colon + 1] == ' ' || line[colon + 1] == '\r';
}

}  // namespace

// In accelerate's files, all lines that are not indented are pairs. A slip elsewhere is one.
void refuse_yaml(const std::string& text, const std::string& file) {
  std::istringstream lines(text);
  int pairs = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool is_blank = line.find_first_not_of(" \t\r") == std::string::npos;
    if (is_blank || line.starts_with('#') || line.starts_with("---") || line.starts_with(' ') ||
        line.starts_with("- ")) {
      continue;
    }
    if (!is_yaml_pair(line)) return;
    ++pairs;
  }
  if (pairs < 2) return;
  throw InputError(file +
                   ": is YAML, such as accelerate writes, and none is read; give the JSON that it "
                   "names as deepspeed_config_file with --deepspeed, or say the same by "
                   "parallel.strategy (fsdp), parallel.ranks (its num_processes) and "
                   "training.mixed_precision_param (bfloat16)");
}

std::vector<Setting> settings_of_file(const std::filesystem::path& file,
                                      const std::vector<Key>& keys) {
  const std::string text = io::read_text(file, kMostBytes);
  if (text.empty()) {
    throw InputError(file.string() + ": is empty; write settings into it, or leave --config out");
  }
  std::multimap<toml::source_position, Setting> settings;  // toml++ has them by name
  const auto add = [&](const std::string& key, const toml::node& node) {
    std::ostringstream printed;
    if (const auto* real = node.as_floating_point()) {
      printed << shortest(real->get());
    } else {
      printed << toml::node_view(node);
    }
    const toml::source_position place = node.source().begin;
    const std::string origin = fmt::format("{}:{}", file.string(), place.line);
    settings.insert({place, {key, origin, node.value_or(printed.str()), node.is_string()}});
  };
  for (const auto& [name, node] : parse(text, file.string())) {
    const std::string section = std::string(name.str()) + ".";
    const auto is_within = [&](const Key& key) { return key.name.starts_with(section); };
    const toml::table* table = node.as_table();
    if (table == nullptr || (table->empty() && std::ranges::none_of(keys, is_within))) {
      const bool is_dotted = name.str().find('.') != std::string_view::npos;
      add(std::string(name.str()) + (is_dotted ? " in quotes" : ""), node);
      continue;
    }
    const auto walk = [&](const toml::table& within, const std::string& prefix,
                          const auto& self) -> void {
      for (const auto& [key, value] : within) {
        const toml::table* inner = value.as_table();
        const std::string path = prefix + std::string(key.str());
        const bool is_section = std::ranges::find(keys, path, &Key::name) == keys.end();
        if (inner != nullptr && !inner->empty() && is_section) {
          self(*inner, path + ".", self);
        } else {
          add(path, value);
        }
      }
    };
    walk(*table, section, walk);
  }
  std::vector<Setting> in_order;
  for (auto& [place, setting] : settings) in_order.push_back(std::move(setting));
  return in_order;
}

std::vector<Setting> settings_of_words(const std::vector<std::string>& words) {
  std::vector<Setting> settings;
  for (auto word = words.begin(); word != words.end(); ++word) {
    Setting setting{.key = *word, .origin = kCommandLine};  // if it does not begin with --
    const std::size_t equals = word->find('=');
    if (word->starts_with("--")) {
      setting.key = word->substr(2, equals - 2);
      if (equals != std::string::npos)
        setting.value = word->substr(equals + 1);
      else if (std::next(word) != words.end())
        setting.value = *++word;
    }
    settings.push_back(setting);
  }
  return settings;
}

}  // namespace fsdp::config
