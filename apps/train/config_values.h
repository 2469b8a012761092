/// @file
/// @ingroup train
/// What a user wrote, key by key, before it is known what it means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fsdp::train {

/// One key and its value.
struct GivenValue {
  /// From the command line: the read decides its type.
  struct Text {
    std::string text;
  };
  /// A list, a date, an empty section: nothing a key can have.
  struct Other {
    std::string type;
  };
  static constexpr const char* kEmptySection = "an empty section";
  std::string key;     ///< "training.steps"
  std::string origin;  ///< "tiny.toml:12", "command line"
  std::variant<std::int64_t, double, bool, std::string, Text, Other> value;
  std::uint32_t line = 0;  ///< in the file
};

/// All keys of a TOML file, or of a pipe, in the order in which they are written.
/// @throws InputError naming file and line if it is not TOML, or if it is empty.
std::vector<GivenValue> values_of_file(const std::filesystem::path& file);

/// Overrides, each "--section.key=value", or "--section.key" and "value". @throws InputError
std::vector<GivenValue> values_of_command_line(const std::vector<std::string>& words);

/// A user's text within a message: one line, and not a long one.
std::string plain(std::string_view text);

/// The value as it is named in a message about its type.
std::string show(const GivenValue& given);

}  // namespace fsdp::train
