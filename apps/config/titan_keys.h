/// @file
/// @ingroup config
/// torchtitan's spellings of what a configuration says.
#pragma once

#include "config/keys.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::config {

/// What a runner's environment says, as torchtitan's run_memory_estimation.sh reads it.
struct Environment {
  std::optional<std::string> ngpu;         ///< NGPU: ranks of a node
  std::optional<std::string> nnodes;       ///< NNODES
  std::optional<std::string> config_file;  ///< CONFIG_FILE
  bool is_deepspeed = false;               ///< a DeepSpeed file says what the strategy is
  static Environment of_process();         ///< an empty variable counts as unset
};

/// By key: the options with which a change of it counts, such as activation_checkpoint.mode for
/// training.activation_checkpoint. Missing or empty: the key itself.
using Spellings = std::map<std::string, std::vector<std::string>>;

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

  std::vector<Key> keys();
  bool is_given(const std::string& key) const { return origins.contains(key); }
  /// "tiny.toml:12: parallelism.tensor_parallel_degree"
  std::string origin(const std::string& key) const { return origins.at(key) + ": " + key; }
};

/// Replaces each of torchtitan's settings by ours, where it stood: so the command line beats the
/// file in either spelling.
/// @param warnings gets what was switched off, passed over, or beaten by the command line
/// @throws InputError for what this program cannot estimate, and for two spellings of one key that
/// contradict each other in the same place.
TitanKeys translate(std::vector<Setting>& settings, const Environment& environment,
                    std::vector<std::string>& warnings);

}  // namespace fsdp::config
