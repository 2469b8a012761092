/// @file
/// @ingroup config
/// A DeepSpeed configuration as it was written: every value with its path and line.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::config::deepspeed {

/// A value that is no section, or one that a predicate says is one value.
struct Entry {
  std::string path;   ///< "zero_optimization.stage"
  std::string place;  ///< "ds_config.json:31"
  nlohmann::ordered_json value;

  bool is_auto() const { return value == "auto"; }
  /// "ds_config.json:31: zero_optimization.stage"
  std::string origin() const;
  /// Without quotes, and a whole number without a fraction: 5e8 is "500000000".
  std::string text() const;
  /// As it stands in a message: one line, texts in quotes.
  std::string shown() const;
  /// @throws InputError beginning with the origin
  [[noreturn]] void refuse(const std::string& why) const;
};

/// Whether a path ends in a comment: JSON has none, so people write "_comment" and "//" as keys.
bool is_comment(const std::string& path);

/// All entries of a file, in its order. A null counts as left out, as in DeepSpeed, but for a key
/// that has no place in `paths`.
class Document {
 public:
  /// `paths` are all that may occur: what has one of them is a value, and what lies above one a
  /// section. Whatever else occurs becomes an entry too, for the caller to refuse.
  /// @throws InputError naming file and line if it cannot be read, is not JSON, names a key twice,
  /// or has a value in place of a section.
  Document(const std::filesystem::path& file, const std::vector<std::string>& paths);

  const std::vector<Entry>& entries() const { return entries_; }
  /// Null if the file does not have it.
  const Entry* find(const std::string& path) const;
  /// Whether a section of this name has an entry.
  bool has_section(const std::string& name) const;
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::vector<Entry> entries_;
};

}  // namespace fsdp::config::deepspeed
