#include "estimator/estimator_config.h"

#include "base/check.h"
#include "estimator/titan_keys.h"
#include "train/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <variant>

namespace fsdp::estimator {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

// torchtitan's flags need no value: --memory_estimation.disable_fake_mode.
std::vector<std::string> with_values(const std::vector<std::string>& words) {
  TitanKeys titan;
  std::vector<std::string> flags;
  for (const train::Key& key : titan.keys()) {
    if (std::holds_alternative<bool*>(key.member)) flags.push_back("--" + key.name);
  }
  std::vector<std::string> complete;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_flag = std::ranges::find(flags, words[i]) != flags.end();
    const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with("--");
    complete.push_back(is_flag && !has_value ? words[i] + "=true" : words[i]);
  }
  return complete;
}

// torchtitan's keys too are part of the effective configuration, as they count here.
void add_settings(TitanKeys& titan, train::TrainConfig& config) {
  for (const train::Key& key : titan.keys()) {
    if (!titan.is_given(key.name)) continue;
    const bool is_off = key.name == "compile.enable" && titan.compiles;
    config.settings[key.name] = is_off ? "false (switched off)" : key.get();
    config.origins[key.name] = titan.origins.at(key.name);
  }
}

}  // namespace

Environment Environment::of_process() {
  return {variable("NGPU"), variable("NNODES"), variable("CONFIG_FILE")};
}

EstimatorConfig load_estimator_config(const std::optional<std::filesystem::path>& file,
                                      const std::vector<std::string>& words,
                                      const Environment& environment) {
  EstimatorConfig config;
  TitanKeys titan;
  const auto translate_all = [&](std::vector<train::Setting>& settings) {
    titan = translate(settings, environment, config.warnings);
  };
  const bool reads_variable = !file && environment.config_file;
  config.train =
      train::load_config(reads_variable ? std::filesystem::path(*environment.config_file) : file,
                         with_values(words), {}, {.is_modeled = true, .translate = translate_all});
  config.is_real = titan.disable_fake_mode;
  add_settings(titan, config.train);
  const std::vector<std::string>& remarks = config.train.remarks;
  config.warnings.insert(config.warnings.end(), remarks.begin(), remarks.end());
  return config;
}

std::string describe_titan_keys() {
  TitanKeys titan;
  std::string all;
  for (const train::Key& key : titan.keys()) {
    all += fmt::format("  --{:46} {:5} {} ({})\n", key.name, key.get(), key.meaning, key.values());
  }
  return all;
}

}  // namespace fsdp::estimator
