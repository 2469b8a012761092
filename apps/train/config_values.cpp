#include "train/config_values.h"

#include "base/check.h"
#include "io/file_io.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

namespace fsdp::train {
namespace {

/// What a configuration is never longer than: /dev/zero has no end.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

void add_table(const toml::table& table, const std::string& prefix, const std::string& file,
               std::vector<GivenValue>& values) {
  for (const auto& [name, node] : table) {
    GivenValue given;
    given.key = prefix + std::string(name.str());
    given.line = node.source().begin.line;
    given.origin = fmt::format("{}:{}", file, given.line);
    // It would be the same key as the one written without quotes, and silently win or lose.
    if (name.str().find('.') != std::string_view::npos) {
      throw InputError(
          fmt::format("{}: \"{}\" is one name with a dot in it; write {} without quotes",
                      given.origin, plain(name.str()), plain(name.str())));
    }
    // A key is a section and a name: what is nested deeper is wrong, however deep it goes.
    const bool is_deep = std::count(prefix.begin(), prefix.end(), '.') > 2;
    const toml::table* section = node.as_table();
    if (section != nullptr && !section->empty() && !is_deep) {
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
      given.value =
          GivenValue::Other{node.is_table() ? GivenValue::kEmptySection : "a list or a date"};
    }
    values.push_back(std::move(given));
  }
}

/// Line `number` of a text, from 1.
std::string_view line_of(std::string_view text, std::uint32_t number) {
  for (; number > 1 && !text.empty(); --number) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// 5.0, not 5, where a whole number was wanted.
std::string show_real(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::vector<GivenValue> values_of_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  const std::string text = io::read_text(file, kMostBytes);
  if (text.empty()) {
    throw InputError(
        fmt::format("{}: is empty; write settings into it, or leave --config out", name));
  }
  std::vector<GivenValue> values;
  try {
    add_table(toml::parse(text, name), "", name, values);
  } catch (const toml::parse_error& error) {
    const std::uint32_t line = error.source().begin.line;
    throw InputError(fmt::format("{}:{}: not TOML, at \"{}\": {}", name, line,
                                 plain(line_of(text, line)), std::string(error.description())));
  }
  std::stable_sort(values.begin(), values.end(),
                   [](const GivenValue& a, const GivenValue& b) { return a.line < b.line; });
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
                      plain(word)));
    }
    if (equals == std::string::npos && i + 1 == words.size()) {
      throw InputError(fmt::format("command line: {}: a value must follow", plain(key.substr(2))));
    }
    const std::string text = equals == std::string::npos ? words[++i] : word.substr(equals + 1);
    values.push_back({key.substr(2), "command line", GivenValue::Text{text}, 0});
  }
  return values;
}

std::string plain(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown(text.substr(0, kShown));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c >= 0 && (c < 0x20 || c == 0x7F); }, '?');
  return text.size() > kShown ? shown + "..." : shown;
}

std::string show(const GivenValue& given) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return fmt::format("the text \"{}\"", plain(held));
        } else if constexpr (std::is_same_v<T, GivenValue::Text>) {
          return fmt::format("\"{}\"", plain(held.text));
        } else if constexpr (std::is_same_v<T, GivenValue::Other>) {
          return held.type;
        } else if constexpr (std::is_same_v<T, double>) {
          return show_real(held);
        } else {
          return fmt::format("{}", held);
        }
      },
      given.value);
}

}  // namespace fsdp::train
