/// @file
/// @ingroup train
/// The options of a configuration, as CLI11 knows them. A file sets the same ones as the command
/// line, through the same checks.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fsdp::train {

/// One key of a TOML file and its value, before it is known what they mean.
struct FileValue {
  std::string key;        ///< "training.steps"
  std::string origin;     ///< "tiny.toml:12"
  std::uint32_t line;     ///< in the file
  std::string text;       ///< the value, as the command line would give it
  bool is_quoted;         ///< a text
  bool is_empty_section;  ///< no value at all
};

/// All keys of a TOML file, or of a pipe, in the order in which they are written.
/// @throws InputError naming file and line if it is not TOML, or if it is empty.
std::vector<FileValue> values_of_file(const std::filesystem::path& file);

/// A user's text within a message: one line, and not a long one.
std::string plain(std::string_view text);

/// All of `text` as a number; otherwise what is wrong: no number, or beyond the type.
template <class T>
std::errc parse_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return stop == end ? error : std::errc::invalid_argument;
}

/// The values that a key may have.
struct Values {
  std::string description;  ///< "whole number, at least 0"
  /// Empty if the text is such a value, otherwise what is wrong with it.
  std::function<std::string(const std::string&)> check;
  bool is_text = false;  ///< in quotes in a file
};
Values whole(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max());
Values real(double least, double most);
Values truth();
Values truth_or_whole();
Values any_text();
Values one_of(const std::vector<std::string>& words);

class ConfigOptions {
 public:
  ConfigOptions();
  /// Declares a key: where its value goes, what it may be, and the help.
  template <class Member>
  void add(const std::string& key, Member& member, const Values& values, const char* meaning) {
    CLI::Option* option = nullptr;
    if constexpr (std::is_floating_point_v<Member>) {
      // CLI11 reads a long double and rounds it again, which can differ in the last bit.
      option = app_.add_option_function<std::string>(
          "--" + key, [&member](const std::string& text) { parse_number(text, member); });
    } else {
      option = app_.add_option("--" + key, member);
    }
    finish(option->description(meaning), values, [&member] { return fmt::format("{}", member); });
  }

  /// @throws InputError beginning with origin and key.
  void set(const FileValue& value);
  /// Sets what `words` give, each as "--section.key=value" or as "--section.key" and "value".
  /// @throws InputError about the first word that is wrong, beginning with `origin`.
  void set(std::vector<std::string> words, const std::string& origin);

  struct Key {
    std::string name;                       ///< "training.steps"
    const CLI::Option* option;              ///< its help, its default
    bool is_text;                           ///< in quotes in a file
    std::function<std::string()> value_of;  ///< now, in one spelling: 1e-3 is "0.001"
  };
  const std::vector<Key>& keys() const { return keys_; }
  /// Every key that was set, with the place that set it last.
  const std::map<std::string, std::string>& origins() const { return origins_; }

 private:
  void finish(CLI::Option* option, const Values& values, std::function<std::string()> value_of);
  std::string about_unknown(const std::string& key) const;

  CLI::App app_;
  std::vector<Key> keys_;
  std::map<std::string, std::string> origins_;
};

}  // namespace fsdp::train
