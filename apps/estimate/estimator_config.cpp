#include "estimate/estimator_config.h"

#include "base/check.h"
#include "config/keys.h"
#include "config/titan_keys.h"
#include "train/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace fsdp::estimate {
namespace {

// Whether the command line sets the same in our spelling.
bool is_beaten(const config::TitanKeys& titan, const std::string& key,
               const config::TrainConfig& config) {
  const std::map<std::string, std::string> ours = {
      {"activation_checkpoint.mode", "training.activation_checkpoint"},
      {"model.flavor", "model.preset"},
      {"parallelism.data_parallel_replicate_degree", "parallel.data_parallel_replicate_degree"}};
  const auto found = ours.find(key);
  if (found == ours.end() || !config.origins.contains(found->second)) return false;
  return config.origins.at(found->second) == config::kCommandLine &&
         titan.origins.at(key) != config::kCommandLine;
}

// torchtitan's keys too are part of the effective configuration, as they count here.
void add_settings(config::TitanKeys& titan, config::TrainConfig& config) {
  for (const config::Key& key : titan.keys()) {
    if (!titan.is_given(key.name)) continue;
    const bool is_idle = is_beaten(titan, key.name, config);
    config.settings[key.name] = key.get() + (is_idle ? " (beaten)" : "");
    config.origins[key.name] = titan.origins.at(key.name);
  }
}

// torchtitan's words for training.activation_checkpoint.
std::string mode_of(const std::string& value) {
  if (value == "operations") return "selective --activation_checkpoint.selective_ac_option op";
  return value == "block" ? "full" : value;
}

}  // namespace

std::string EstimatorConfig::option(const std::string& key, const std::string& value) const {
  const auto found = spellings.find(key);
  if (found == spellings.end() || found->second.empty()) return fmt::format(" --{} {}", key, value);
  std::string text;
  for (const std::string& name : found->second) {
    const bool is_mode = name == "activation_checkpoint.mode";
    text += fmt::format(" --{} {}", name, is_mode ? mode_of(value) : value);
  }
  return text;
}

std::string EstimatorConfig::world_options(std::int64_t ranks, std::int64_t replicas) const {
  const optim::Recipe& now = train.recipe;
  std::string text;
  const auto found = spellings.find("parallel.ranks");
  const std::vector<std::string> names = found == spellings.end() || found->second.empty()
                                             ? std::vector<std::string>{"parallel.ranks"}
                                             : found->second;
  for (const std::string& name : names) {
    const bool is_shards = name == "parallelism.data_parallel_shard_degree";
    if (is_shards || ranks != now.ranks) {
      text += fmt::format(" --{} {}", name, is_shards ? ranks / replicas : ranks);
    }
  }
  const std::string key = "parallel.data_parallel_replicate_degree";
  // Without fsdp the degree has no effect, but it may be written.
  const bool is_idle = spellings.contains(key) && now.strategy != optim::Strategy::fsdp;
  return text + (replicas != now.replicas || is_idle ? option(key, std::to_string(replicas)) : "");
}

paper::MemoryOptions memory_options(const EstimatorConfig& config) {
  paper::MemoryOptions options = train::memory_options(config.train);
  options.rank = config.rank;
  options.framework = config.framework;
  options.habits = config.habits;
  options.zero = config.zero;
  options.zero.keeps_shards = !config.train.deepspeed.keeps_shards.empty();
  return options;
}

EstimatorConfig load_estimator_config(const std::optional<std::filesystem::path>& file,
                                      const std::vector<std::string>& words,
                                      const config::Environment& environment,
                                      const std::optional<std::filesystem::path>& deepspeed) {
  EstimatorConfig config;
  config.train =
      config::load_config(file, words, deepspeed, {.is_modeled = true, .environment = environment});
  config::TitanKeys& titan = config.train.titan;
  config.is_real = titan.disable_fake_mode;
  config.spellings = titan.spellings;
  add_settings(titan, config.train);
  config.warnings = config.train.remarks;
  return config;
}

}  // namespace fsdp::estimate
