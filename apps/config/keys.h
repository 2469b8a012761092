/// @file
/// @ingroup config
/// The keys of a configuration, and what a user wrote for them. CLI11 reads the other options of
/// the program. Here it would read 010 as 8, yes as true and NaN as within every range.
#pragma once

#include "optim/recipe.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp::config {

/// The values that a key may have, within its type.
struct Allowed {
  double least = 0;  ///< of a number
  double most = 0;
  std::vector<std::string> words = {};  ///< of a text; none: any text
};
inline Allowed range(double least, double most) { return {.least = least, .most = most}; }
inline Allowed one_of(std::vector<std::string> words) { return {.words = std::move(words)}; }

/// A key and the member of a configuration that it sets.
struct Key {
  std::string name;  ///< "training.steps"
  /// Of an enum, the words that are allowed are its values in their order. A list is one text with
  /// commas, and a format that is missing is "none".
  std::variant<int*, std::int64_t*, double*, bool*, std::string*, std::vector<std::string>*,
               std::optional<DType>*, optim::Strategy*, optim::Partition*, optim::Checkpointing*,
               ReshardAfterForward*>
      member;
  std::string meaning;  ///< for --help
  Allowed allowed = {};

  bool is_text() const;
  /// As --help has them: "a whole number between 1 and 256", "true or false", "one of a, b".
  std::string values() const;
  /// Sets the member; false if the text is none of these values.
  bool set(const std::string& text) const;
  /// The member's value in one spelling: 1e-3 is "0.001".
  std::string get() const;
};

/// One of our keys, which there must be.
const Key& key_named(const std::vector<Key>& keys, const std::string& name);

/// For a text that is not what it should be. @throws InputError if it is YAML.
void refuse_yaml(const std::string& text, const std::string& file);

/// The origin of a setting that stands in no file.
inline constexpr const char* kCommandLine = "command line";

/// What a user wrote for one key.
struct Setting {
  std::string key;
  std::string origin;                     ///< "tiny.toml:12", "command line"
  std::optional<std::string> value = {};  ///< none: the command line ends after the key
  std::optional<bool> is_quoted = {};     ///< in a file
  /// Sets the key that is meant.
  /// @throws InputError beginning with origin and key, if there is no such key or value.
  void apply(const std::vector<Key>& keys) const;
};

/// All settings of a TOML file, or of a pipe, in the order of the file. What stands outside of a
/// section, or is an empty section without any of the keys, is one too: apply() refuses it.
/// @throws InputError naming the file, and the line that is not TOML, or if it is empty.
std::vector<Setting> settings_of_file(const std::filesystem::path& file,
                                      const std::vector<Key>& keys);
/// Those of a command line, each "--section.key=value", or "--section.key" and "value".
std::vector<Setting> settings_of_words(const std::vector<std::string>& words);

/// Of some names, which are not none, the one whose beginning and end are most alike a name's.
const std::string& nearest(const std::string& name, const std::vector<std::string>& names);

}  // namespace fsdp::config
