/// @file
/// @ingroup train
/// What a user wrote, key by key, before anybody has said what it means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace fsdp::train {

/// One key and its value.
struct GivenValue {
  /// From the command line: its type is decided by whoever reads it.
  struct Text {
    std::string text;
  };
  /// A list, a date, an empty section: nothing a key can have.
  struct Other {
    std::string type;
  };
  std::string key;     ///< "training.steps"
  std::string origin;  ///< "tiny.toml:12", "command line"
  std::variant<std::int64_t, double, bool, std::string, Text, Other> value;
};

/// All keys of a TOML file. @throws InputError naming file and line if it is not TOML.
std::vector<GivenValue> values_of_file(const std::filesystem::path& file);

/// Overrides, each "--section.key=value", or "--section.key" and "value". @throws InputError
std::vector<GivenValue> values_of_command_line(const std::vector<std::string>& words);

/// The value as it is named in a message about its type.
std::string show(const GivenValue& given);

}  // namespace fsdp::train
