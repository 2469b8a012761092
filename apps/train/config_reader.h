/// @file
/// @ingroup train
/// Reads typed values by dotted key out of a TOML file and command-line overrides, and complains
/// well.
#pragma once

#include "train/config_values.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {

struct IntRange {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};
struct RealRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

/// The values a user gave, by key. Every read() also makes a key known, with what it means; so the
/// code that reads the configuration is the only list of keys there is.
class ConfigReader {
 public:
  struct KnownKey {
    std::string key;
    std::string fallback;
    std::string meaning;
    std::string value;  ///< as it was read, in one spelling: 1e-3 is "0.001"
  };

  /// @throws InputError for a file that is not TOML, or an override that is no key and value.
  ConfigReader(const std::optional<std::filesystem::path>& file,
               const std::vector<std::string>& overrides);

  // Each leaves `value` as it is when the user said nothing.
  void read(const std::string& key, std::int64_t& value, IntRange range, const char* meaning);
  void read(const std::string& key, int& value, IntRange range, const char* meaning);
  void read(const std::string& key, double& value, RealRange range, const char* meaning);
  void read(const std::string& key, bool& value, const char* meaning);
  void read(const std::string& key, std::string& value, const char* meaning);
  /// One of a few words.
  void read(const std::string& key, std::string& value, const std::vector<std::string>& words,
            const char* meaning);
  /// true, false, or a whole number: returned as text.
  void read_switch_or_number(const std::string& key, std::string& value, const char* meaning);

  /// @throws InputError for every key that was given and never read.
  void check_all_known() const;
  const std::vector<KnownKey>& known() const { return known_; }
  /// Where the value of a key came from: "tiny.toml:12: training.steps", "command line: …".
  std::string origin(const std::string& key) const;
  [[noreturn]] void complain(const std::string& key, const std::string& what) const;

 private:
  const GivenValue* find(const std::string& key, const std::string& fallback, const char* meaning);

  std::string file_name_;
  std::vector<GivenValue> given_;  // later ones win
  std::vector<KnownKey> known_;
};

}  // namespace fsdp::train
