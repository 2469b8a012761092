/// @file
/// @ingroup config
/// torchtitan's spellings of what a configuration says. titan/rows.h has the table of its keys.
#pragma once

#include "config/foreign/report.h"
#include "config/keys.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::config {

/// What a runner's environment says, as torchtitan's run_memory_estimation.sh reads it.
struct Environment {
  std::optional<std::string> ngpu = {};         ///< NGPU: ranks of a node
  std::optional<std::string> nnodes = {};       ///< NNODES
  std::optional<std::string> config_file = {};  ///< CONFIG_FILE
  bool is_deepspeed = false;                    ///< a DeepSpeed file says what the strategy is
  static Environment of_process();              ///< an empty variable counts as unset
};

/// By key: the options with which a change of it counts, such as activation_checkpoint.mode for
/// training.activation_checkpoint. Missing or empty: the key itself.
using Spellings = std::map<std::string, std::vector<std::string>>;

/// The values of torchtitan's keys, and where each was given.
struct TitanKeys {
  bool is_file = false;     ///< the file is torchtitan's, so its defaults count
  bool is_of_2024 = false;  ///< it has a key that torchtitan dropped then
  std::int64_t shard_degree = -1;
  std::int64_t replicate_degree = 1;
  bool is_enabled = true;
  bool disable_fake_mode = false;
  bool compiles = false;
  std::string compiled = "model,loss";  ///< what of a training, if it compiles
  /// torchao's converter of linear layers, of which an estimate for PyTorch asks.
  struct Float8 {
    bool is_used = false;      ///< products of blocks are in float8
    bool has_head = false;     ///< and that of the output
    bool is_gathered = false;  ///< weights are gathered in it
    std::string unknown;       ///< why its bytes are not known, as an error says it; or empty
  } float8;
  bool reshards_always = false;  ///< fsdp_reshard_after_forward is always: the last unit too
  std::string checkpoint_mode = "none";
  std::string name = "llama3";
  std::string flavor;
  std::map<std::string, std::string> origins;
  std::map<std::string, std::string> written;  ///< the older spelling, by key, if that was used
  Spellings spellings;

  std::vector<Key> keys();
  bool is_given(const std::string& key) const { return origins.contains(key); }
  /// "tiny.toml:12: parallelism.data_parallel_shard_degree"
  std::string origin(const std::string& key) const;
};

/// What a translation needs to know, and where it reports.
struct TitanSurroundings {
  const std::vector<Key>& keys;  ///< ours
  std::string file;              ///< "" = none
  Environment environment;
  bool is_modeled;
  foreign::Report& report;             ///< gets each key of the file, and what is refused
  std::vector<std::string>& warnings;  ///< what was switched off, noted, or filled in
};

/// Replaces each of torchtitan's settings by ours, where it stood: so the command line beats the
/// file in either spelling.
///
/// A file is torchtitan's if it has a key that only torchtitan has, and none that only we have, but
/// for those that say what is read and written: data.*, sample.*, export.*, metrics.* and
/// checkpoint.from. Then its keys mean what they mean there, and torchtitan's defaults count where
/// it is silent.
/// @throws InputError for two spellings of one key that contradict each other in the same place,
/// and for numbers of ranks that do.
TitanKeys translate(std::vector<Setting>& settings, const TitanSurroundings& around);

/// Whether a word is a flag of torchtitan, such as --compile.enable, which needs no value.
bool is_flag(const std::string& word);
/// Whether `word`, which follows `option`, is its value.
bool is_value_of(const std::string& option, const std::string& word);
/// The words of a command line, with "=true" after each flag of torchtitan that has no value.
std::vector<std::string> with_values(const std::vector<std::string>& words);

/// torchtitan's keys that are often given on a command line, one per line, for --help.
std::string describe_titan_keys();

}  // namespace fsdp::config
