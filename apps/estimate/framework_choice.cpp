#include "estimate/framework_choice.h"

#include "base/check.h"
#include "base/printable.h"
#include "paper/memory_formula.h"

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

void refuse_float8(const EstimatorConfig& config) {
  const config::TitanKeys& titan = config.train.titan;
  if (!titan.float8.is_used) return;
  if (!titan.float8.unknown.empty()) throw InputError(titan.float8.unknown);
  throw InputError(fmt::format(
      "{}: asks for float8, which {} does not compute in; leave it out, or use --framework pytorch",
      titan.origin("float8"), paper::name_of(config.framework)));
}

// The error says how much hangs on it: the peak without float8, and by torchao's default.
void refuse_unknown_float8(EstimatorConfig config) {
  const std::string& unknown = config.train.titan.float8.unknown;
  if (unknown.empty()) return;
  const auto peak = [&](bool in_float8) {
    config.habits.computes_float8 = in_float8;
    config.habits.gathers_float8 = in_float8 && config.train.titan.float8.is_gathered;
    const std::int64_t nbytes =
        paper::peak_of_training(config.train.model, memory_options(config)).total();
    return static_cast<double>(nbytes) / 0x1p30;
  };
  throw InputError(
      fmt::format("{} (the peak is {:.2f} GiB without float8, and {:.2f} GiB with all products of "
                  "blocks in float8 by the recipe tensorwise)",
                  unknown, peak(false), peak(true)));
}

// The model's products in float8, and what is compiled.
void choose_titan_habits(EstimatorConfig& config) {
  const config::TitanKeys& titan = config.train.titan;
  const auto compiles = [&](const char* part) {
    return titan.compiles && titan.compiled.find(part) != std::string::npos;
  };
  config.habits.compiles_blocks = compiles("model");
  // Until 2025, the model alone was compiled.
  config.habits.compiles_loss = compiles("loss") && config.framework == paper::Framework::pytorch;
  if (!titan.float8.is_used) return;
  config.habits.computes_float8 = true;
  config.habits.head_in_float8 = titan.float8.has_head;
  config.habits.gathers_float8 = titan.float8.is_gathered;
  config.warnings.push_back(fmt::format(
      "{}: products of blocks{} round their operands to float8, and {}; {}", titan.origin("float8"),
      titan.float8.has_head ? " and of the output" : "",
      titan.float8.is_gathered ? "weights are gathered in it"
                               : "weights are gathered in the model's format",
      config.habits.compiles_blocks ? "that a compiled kernel does it at once is assumed"
                                    : "without compile.enable, by way of two copies in float32"));
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
  const bool is_of_titan = config.framework == paper::Framework::pytorch ||
                           config.framework == paper::Framework::pytorch_2024;
  if (!is_of_titan) {
    refuse_float8(config);
    switch_off_compiling(config);
  }
  const std::string& keeps_shards = config.train.deepspeed.keeps_shards;
  if (config.framework != paper::Framework::deepspeed && !keeps_shards.empty()) {
    throw InputError(keeps_shards);
  }
  if (config.framework == paper::Framework::unshard) return;
  config.habits = paper::habits_of(config.framework);
  config.habits.frees_head = config.train.titan.reshards_always;
  is_of_titan ? choose_titan_habits(config) : choose_zero_habits(config);
  try {
    paper::check_framework(memory_options(config));
  } catch (const optim::RecipeError& error) {
    throw InputError(config.train.origin(error.key()) + ": " + error.why());
  }
  refuse_unknown_float8(config);
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
