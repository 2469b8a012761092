#include "train/config_values.h"

#include "base/check.h"
#include "nn/file_io.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <type_traits>
#include <utility>

namespace fsdp::train {
namespace {

void add_table(const toml::table& table, const std::string& prefix, const std::string& file,
               std::vector<GivenValue>& values) {
  for (const auto& [name, node] : table) {
    GivenValue given;
    given.key = prefix + std::string(name.str());
    given.origin = fmt::format("{}:{}", file, node.source().begin.line);
    if (const toml::table* section = node.as_table(); section != nullptr && !section->empty()) {
      add_table(*section, given.key + ".", file, values);
      continue;
    }
    if (const auto* integer = node.as_integer()) {
      given.value = integer->get();
    } else if (const auto* real = node.as_floating_point()) {
      given.value = real->get();
    } else if (const auto* truth = node.as_boolean()) {
      given.value = truth->get();
    } else if (const auto* text = node.as_string()) {
      given.value = text->get();
    } else {
      given.value = GivenValue::Other{node.is_table() ? "an empty section" : "a list or a date"};
    }
    values.push_back(std::move(given));
  }
}

}  // namespace

std::vector<GivenValue> values_of_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::vector<GivenValue> values;
  try {
    add_table(toml::parse(nn::read_text(file), name), "", name, values);
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format("{}:{}: not TOML: {}", name, error.source().begin.line,
                                 std::string(error.description())));
  }
  return values;
}

std::vector<GivenValue> values_of_command_line(const std::vector<std::string>& words) {
  std::vector<GivenValue> values;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (!key.starts_with("--") || key.find('.') == std::string::npos) {
      throw InputError(
          fmt::format("command line: unexpected \"{}\"; settings look like "
                      "--training.steps 100 (see --help)",
                      word));
    }
    if (equals == std::string::npos && i + 1 == words.size()) {
      throw InputError(fmt::format("command line: {}: a value must follow", key.substr(2)));
    }
    const std::string text = equals == std::string::npos ? words[++i] : word.substr(equals + 1);
    values.push_back({key.substr(2), "command line", GivenValue::Text{text}});
  }
  return values;
}

std::string show(const GivenValue& given) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return fmt::format("the text \"{}\"", held);
        } else if constexpr (std::is_same_v<T, GivenValue::Text>) {
          return fmt::format("\"{}\"", held.text);
        } else if constexpr (std::is_same_v<T, GivenValue::Other>) {
          return held.type;
        } else {
          return fmt::format("{}", held);
        }
      },
      given.value);
}

}  // namespace fsdp::train
