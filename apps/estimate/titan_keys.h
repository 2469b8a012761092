/// @file
/// @ingroup estimate
/// torchtitan's spellings of what a configuration says.
#pragma once

#include "estimate/estimator_config.h"
#include "train/config_keys.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// The values of torchtitan's keys, and where each was given.
struct TitanKeys {
  std::int64_t shard_degree = -1;
  std::int64_t replicate_degree = 1;
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t context = 1;
  std::int64_t expert = 1;
  bool is_enabled = true;
  bool disable_fake_mode = false;
  bool compiles = false;
  std::string checkpoint_mode = "none";
  std::string name = "llama3";
  std::string flavor;
  std::map<std::string, std::string> origins;
  Spellings spellings;

  std::vector<train::Key> keys();
  bool is_given(const std::string& key) const { return origins.contains(key); }
  /// "tiny.toml:12: parallelism.tensor_parallel_degree"
  std::string origin(const std::string& key) const { return origins.at(key) + ": " + key; }
};

/// Replaces each of torchtitan's settings by ours, where it stood: so the command line beats the
/// file in either spelling.
/// @param warnings gets what was switched off, passed over, or beaten by the command line
/// @throws InputError for what this program cannot estimate, and for two spellings of one key that
/// contradict each other in the same place.
TitanKeys translate(std::vector<train::Setting>& settings, const Environment& environment,
                    std::vector<std::string>& warnings);

}  // namespace fsdp::estimate
