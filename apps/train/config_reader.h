/// @file
/// @ingroup train
/// Reads typed values by dotted key out of a TOML file and command-line overrides, and complains
/// well.
#pragma once

#include "train/config.h"
#include "train/config_values.h"

#include <cstddef>
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
///
/// Complaints are collected, and check() throws the first in the order of the user's own text: a
/// wrong value never stops the reads after it, so it can never make a right key look unknown.
class ConfigReader {
 public:
  /// @throws InputError for a file that is not TOML, or an override that is no key and value.
  ConfigReader(const std::optional<std::filesystem::path>& file,
               const std::vector<std::string>& overrides);

  // Each leaves `value` as it is when the user gave none, or a wrong one.
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

  bool is_given(const std::string& key) const { return given_of(key) != nullptr; }
  /// The value of a given key as it was written.
  std::string text_of(const std::string& key) const;
  const std::vector<KeyDescription>& known() const { return known_; }
  /// Where the value of a key came from: "tiny.toml:12: training.steps", "command line: …".
  std::string origin(const std::string& key) const;

  void complain(const std::string& key, const std::string& what);
  /// Complains about every key that was given and never read.
  void complain_about_unknown();
  /// @throws InputError with the first complaint, if there is one.
  void check() const;

 private:
  struct Complaint {
    std::size_t place;  // in given_
    std::string text;
  };
  const GivenValue* given_of(const std::string& key) const;
  const GivenValue* find(const std::string& key, const std::string& fallback, const char* meaning,
                         std::string values);
  std::string complaint_about_unknown(const GivenValue& given) const;

  std::string file_name_;
  std::vector<GivenValue> given_;  // later ones win
  std::vector<KeyDescription> known_;
  std::vector<Complaint> complaints_;
};

}  // namespace fsdp::train
