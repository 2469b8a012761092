/// @file
/// @ingroup config
/// The settings of a translation from torchtitan's keys.
#pragma once

#include "config/titan_keys.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::config::titan {

inline constexpr const char* kShard = "parallelism.data_parallel_shard_degree";
inline constexpr const char* kReplicate = "parallelism.data_parallel_replicate_degree";
inline constexpr const char* kMode = "activation_checkpoint.mode";
inline constexpr const char* kRanks = "parallel.ranks";
inline constexpr const char* kReplicas = "parallel.data_parallel_replicate_degree";
inline constexpr const char* kCheckpoint = "training.activation_checkpoint";

/// Ends the origin of a setting that the file is silent on.
inline constexpr const char* kByDefault = " (torchtitan's default)";

/// A setting in our words, and the key it was written with.
struct Given {
  Setting setting;
  std::string key;

  bool is_translated() const { return key != setting.key; }
  bool is_on_command_line() const { return setting.origin == kCommandLine; }
};
using AllGiven = std::vector<Given>;

/// Null if there is none.
const Given* last_of(const AllGiven& all, const std::string& key);
std::optional<std::int64_t> number_of(std::string_view text);
std::optional<std::int64_t> number_of(const Given* given);
/// With which options a later change of a key counts.
std::vector<std::string> spellings_of(const AllGiven& all, const std::string& key);
/// The command line beats the file, but in one place neither spelling beats the other.
/// @throws InputError naming both.
void refuse_contradictions(const AllGiven& all);

/// What only torchtitan has, by its key: the last setting of each.
using Own = std::map<std::string, Setting>;

/// Adds the number of ranks, and the strategy that they have.
void translate_world(TitanKeys& titan, AllGiven& all, const Environment& environment,
                     bool has_titan, std::vector<std::string>& warnings);
/// The preset of a family and a size; a problem if there is none.
std::optional<std::string> preset_of(const Own& own, foreign::Report& report);
/// What is said by several keys together: the schedule, checkpoints, metrics, offload and float8.
/// @param has_defaults torchtitan's schedule counts even if nothing is said of it
void translate_parts(bool has_defaults, AllGiven& all, const Own& own,
                     const TitanSurroundings& around, TitanKeys& titan);
/// Puts torchtitan's "selective" in our words, which are two keys: of these, the last mode alone
/// decides on the second.
void settle_selective(AllGiven& all, const Own& own, foreign::Report& report);
/// torchtitan's defaults, where its file is silent.
void imply_defaults(AllGiven& all, const Own& own, const TitanSurroundings& around);

}  // namespace fsdp::config::titan
