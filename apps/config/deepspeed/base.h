/// @file
/// @ingroup config
/// A DeepSpeed configuration below a TOML file and the command line.
#pragma once

#include "config/config.h"
#include "config/foreign/report.h"
#include "config/keys.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fsdp::config {

/// What a DeepSpeed configuration has set, before `others` are applied: the settings of the TOML
/// file, then those of the command line. It does not outlive what it was made of.
class DeepSpeedBase {
 public:
  /// Sets the members that `keys` lead to, and the origins and remarks of `config`.
  /// @param report as of settings_of_deepspeed(); also gets a value out of range
  /// @throws InputError as settings_of_deepspeed() does.
  DeepSpeedBase(const std::filesystem::path& file, TrainConfig& config,
                const std::vector<Key>& keys, const std::vector<Setting>& others,
                foreign::Report& report);
  /// After `setting` was applied. Of two files that say different things, neither is meant more, so
  /// only the command line can decide.
  /// @throws InputError naming both places.
  void check_agreement(const Setting& setting) const;

 private:
  /// What the file says of a key, as it is said.
  struct Said {
    std::string value;
    std::string origin;
  };

  const std::vector<Key>& keys_;
  const std::vector<Setting>& others_;
  std::map<std::string, Said> said_;
};

}  // namespace fsdp::config
