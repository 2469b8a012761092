// unshard-estimate: how much memory a training takes, and why.
#include "comm/world.h"
#include "config/explain.h"
#include "estimate/command_line.h"
#include "estimate/comparison.h"
#include "estimate/estimate.h"
#include "estimate/figures.h"
#include "estimate/published.h"
#include "estimate/worksheet.h"
#include "io/output_file.h"
#include "plan/planner.h"
#include "plan/quantity.h"
#include "program/program.h"
#include "train/bound.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>

namespace fsdp::estimate {
namespace {

Detail detail_of(const CommandLine& line) {
  if (line.is_brief) return Detail::answer;
  return line.modules == "all" ? Detail::all_modules : Detail::few_modules;
}

/// The default mode: two iterations, and everything that can be said about their memory. Under
/// a launcher, process 0 says it.
int estimate(const CommandLine& line, const EstimatorConfig& config) {
  if (process_rank() != 0) {
    if (config.is_real) run_estimate(config);  // its ranks are all of these processes
    return 0;
  }
  const Estimate made = make_estimate(config);
  program::print_line(line.format == "json" ? to_json(made) : to_text(made, detail_of(line)));
  if (line.measured) {
    program::print_line(measured_text(made, plan::parse_bytes("--measured", *line.measured)));
  }
  if (line.html) io::write_output_file(*line.html, to_html(made));
  return made.is_good() ? 0 : program::kFailed;
}

int show_figures(const std::string& whose) {
  program::print_line(whose == "published" ? published_text() : figures_text());
  return 0;
}

int show_keys(const std::string& format) {
  program::print_line(config::describe_format(format));
  return 0;
}

/// The same command line, read for each engine.
int compare(CommandLine line) {
  std::vector<EstimatorConfig> configs;
  for (const std::string& each : line.compare) {
    line.framework = each;
    configs.push_back(configure(line));
  }
  program::print_line(comparison_text(configs));
  return 0;
}

int show_worksheet(const EstimatorConfig& config) {
  const Worksheet sheet = make_worksheet(config);
  program::print_line(to_text(sheet));
  return sheet.holds() ? 0 : program::kFailed;
}

/// Many configurations in place of one.
int plan(const CommandLine& line, const EstimatorConfig& made) {
  const config::TrainConfig& training = made.train;
  // JSON stays JSON.
  for (const std::string& warning : made.warnings) {
    if (line.format == "json") {
      fmt::print(stderr, "warning: {}\n", warning);
    } else {
      program::print_line("warning: " + warning);
    }
  }
  plan::PlannerLine asked = line.planner;
  for (const auto& [key, origin] : training.origins) asked.given.push_back(key);
  if (!asked.global_batch && training.origins.contains("training.global_batch_size")) {
    asked.global_batch = std::to_string(training.training.global_batch_size);
  }
  plan::Needed needed;
  if (made.framework != paper::Framework::unshard) {
    needed = needed_bytes;
  }
  const plan::ModeOutput output =
      plan::run_mode(asked, training.model, training.model_name(), memory_options(made), needed);
  program::print_line(output.text);
  return output.is_found ? 0 : program::kFailed;
}

int run(int argc, char** argv) {
  std::optional<CommandLine> line;
  std::optional<EstimatorConfig> config;
  in_every_process([&] {
    line = read_command_line(argc, argv);
    if (!line || !line->figures.empty() || line->explain || !line->keys.empty()) return;
    if (!line->compare.empty()) return;
    config = configure(*line);
    if (line->html && process_rank() == 0) io::probe_file(*line->html);
  });
  if (!line) return 0;
  if (!line->figures.empty()) return process_rank() == 0 ? show_figures(line->figures) : 0;
  if (line->explain) {
    if (process_rank() != 0) return 0;
    return train::show_explanation(*line->explain,
                                   train::words_of(line->short_forms, line->overrides),
                                   /*is_modeled=*/true);
  }
  if (!line->keys.empty()) return process_rank() == 0 ? show_keys(line->keys) : 0;
  if (!line->compare.empty()) return process_rank() == 0 ? compare(*line) : 0;
  if (line->worksheet) return process_rank() == 0 ? show_worksheet(*config) : 0;
  if (line->planner.is_mode()) return process_rank() == 0 ? plan(*line, *config) : 0;
  return estimate(*line, *config);
}

}  // namespace
}  // namespace fsdp::estimate

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-estimate", [&] { return fsdp::estimate::run(argc, argv); });
}
