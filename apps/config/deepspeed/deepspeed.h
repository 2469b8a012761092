/// @file
/// @ingroup config
/// A DeepSpeed configuration (--deepspeed ds_config.json), translated into settings of our keys.
/// docs/deepspeed.md has the table of keys.
#pragma once

#include "config/foreign/report.h"
#include "config/keys.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fsdp::config {

struct TrainConfig;

/// What a DeepSpeed configuration says in its own words.
struct DeepSpeedKeys {
  struct Said {
    std::string text;    ///< "500000000", "true", "auto"
    std::string origin;  ///< as a message begins
  };
  bool is_file = false;
  /// Of the section zero_optimization by key, without the prefix stage3_.
  std::map<std::string, Said> zero;
  /// In stage 3 the optimizer is offloaded, and parameters are not: the message of an engine that
  /// cannot do so, as ours. Empty: both are, or neither.
  std::string keeps_shards;
};

/// What a DeepSpeed configuration asks for, in our keys.
struct DeepSpeedSettings {
  DeepSpeedKeys said;
  /// What DeepSpeed does where the file is silent and our default is another one. Anything that a
  /// user writes counts more.
  std::vector<Setting> implied;
  std::vector<Setting> given;        ///< what the file says; it must not contradict a TOML file
  std::vector<std::string> remarks;  ///< keys that change nothing here, one sentence each
};

/// What a DeepSpeed configuration has set, before `others` are applied: the settings of the TOML
/// file, then those of the command line. It does not outlive what it was made of.
class DeepSpeedBase {
 public:
  /// Sets the members that `keys`, which are all of ours, lead to, and the origins and remarks of
  /// `config`. `others` fill in what is "auto", and parallel.ranks is the W of the product rule
  /// train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x W.
  /// @param report gets each key with its decision, and as a problem, with file, line, path and
  /// remedy, a key that is misspelled, or that DeepSpeed would refuse, and a value that we cannot
  /// honor, or that is out of range
  /// @throws InputError naming file and line for what is not JSON.
  DeepSpeedBase(const std::filesystem::path& file, TrainConfig& config,
                const std::vector<Key>& keys, const std::vector<Setting>& others,
                foreign::Report& report);
  /// After `setting` was applied. Of two files that say different things, neither is meant more, so
  /// only the command line can decide.
  /// @throws InputError naming both places.
  void check_agreement(const Setting& setting) const;

 private:
  const std::vector<Key>& keys_;
  const std::vector<Setting>& others_;
  std::map<std::string, Setting> said_;  // by the file, in our spelling
};

/// Every path that such a file may have, for the tests of the documentation.
std::vector<std::string> deepspeed_paths();

}  // namespace fsdp::config
