#include "estimate/framework_choice.h"

#include "base/check.h"
#include "base/printable.h"
#include "estimate/zero_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp::estimate {
namespace {

void switch_off_compiling(EstimatorConfig& config) {
  if (!config.train.titan.compiles) return;
  config.train.settings["compile.enable"] = "false (switched off)";
  config.warnings.push_back(
      config.train.titan.origin("compile.enable") +
      ": compile mode is switched off: the estimate is that of the uncompiled training");
}

paper::Framework framework_of(const config::TrainConfig& train) {
  using paper::Framework;
  const config::TitanKeys& titan = train.titan;
  if (train.deepspeed.is_file) return Framework::deepspeed;
  if (!titan.is_file) return Framework::unshard;
  return titan.is_of_2024 ? Framework::pytorch_2024 : Framework::pytorch;
}

}  // namespace

std::vector<std::string> frameworks() {
  std::vector<std::string> names;
  for (const paper::Framework each : paper::all_frameworks()) names.emplace_back(name_of(each));
  return names;
}

void choose_framework(const std::string& framework, EstimatorConfig& config) {
  config.framework = framework_of(config.train);
  const std::string& chosen = framework.empty() ? config.train.framework : framework;
  if (const auto named = paper::framework_named(chosen)) {
    config.framework = *named;
  } else if (!chosen.empty()) {
    throw InputError(fmt::format("{}: is {}, must be one of {}",
                                 config.train.origin("memory_estimation.framework"),
                                 printable(chosen), fmt::join(frameworks(), ", ")));
  }
  if (config.framework == paper::Framework::unshard) {
    return switch_off_compiling(config);
  }
  config.habits = paper::habits_of(config.framework);
  config.habits.frees_head = config.train.titan.reshards_always;
  if (config.framework == paper::Framework::deepspeed) {
    choose_zero_habits(config);
    switch_off_compiling(config);
  } else {
    const config::TitanKeys& titan = config.train.titan;
    const auto compiles = [&](const char* part) {
      return titan.compiles && titan.compiled.find(part) != std::string::npos;
    };
    config.habits.compiles_blocks = compiles("model");
    // Until 2025, the model alone was compiled.
    config.habits.compiles_loss = compiles("loss") && config.framework == paper::Framework::pytorch;
  }
  try {
    paper::check_framework(memory_options(config));
  } catch (const optim::RecipeError& error) {
    throw InputError(config.train.origin(error.key()) + ": " + error.why());
  }
  const std::string name(paper::name_of(config.framework));
  if (config.is_real) {
    throw InputError(fmt::format(
        "{}: is true, but {} does not run here; leave it out, or use --framework unshard",
        config.train.origin("memory_estimation.disable_fake_mode"), name));
  }
  if (config.limit != 0 || config.granularity != 1) {
    throw InputError(fmt::format(
        "{}: is for the engine that runs here, and {} does not; leave it out, or use --framework "
        "unshard",
        config.limit != 0 ? "--limit" : "--round-to", name));
  }
}

}  // namespace fsdp::estimate
