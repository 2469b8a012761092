#include "estimate/command_line.h"

#include "base/check.h"
#include "base/printable.h"
#include "comm/processes/launch.h"
#include "config/explain.h"
#include "estimate/framework_choice.h"
#include "plan/quantity.h"
#include "program/command_line/option_parser.h"
#include "train/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace fsdp::estimate {

namespace {

/// The word that is neither an override nor the value of one is the file.
void take_file(CommandLine& line) {
  std::vector<std::string> overrides;
  for (std::size_t i = 0; i < line.overrides.size(); ++i) {
    const std::string& word = line.overrides[i];
    if (!word.starts_with("--")) {
      if (line.config) {
        throw InputError(fmt::format(
            "{}: there is a configuration file already, {}; give one, and every setting as "
            "--section.key VALUE",
            word, *line.config));
      }
      line.config = word;
      continue;
    }
    overrides.push_back(word);
    const bool takes_next =
        i + 1 < line.overrides.size() && config::is_value_of(word, line.overrides[i + 1]);
    if (takes_next) overrides.push_back(line.overrides[++i]);
  }
  line.overrides = std::move(overrides);
}

/// As a shell takes them.
std::string quoted(int argc, const char* const* argv) {
  const auto launch = processes::launched();
  std::string text = launch ? fmt::format("{} {} ", launch->command(), launch->size) : "";
  text += "unshard-estimate";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool is_plain =
        !word.empty() &&
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%") ==
            std::string::npos;
    text += is_plain ? " " + word : " '" + word + "'";
  }
  return text;
}

/// Whose: the word that would be the file.
void take_figures(CommandLine& line) {
  line.figures = std::exchange(line.config, std::nullopt).value_or("sources");
  if (line.figures == "sources" || line.figures == "published") return;
  throw InputError(
      fmt::format("--figures: is \"{}\", must be published, or nothing", printable(line.figures)));
}

void take_compared(const std::string& names, CommandLine& line) {
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    if (!paper::framework_named(name)) {
      throw InputError(fmt::format("--compare: has \"{}\", use {}, separated by commas",
                                   printable(name), fmt::join(frameworks(), ", ")));
    }
    line.compare.push_back(name);
    begin = end + 1;
  }
  if (line.compare.size() < 2) throw InputError("--compare: names one engine; give two or more");
}

void refuse_empty_paths(const CommandLine& line) {
  for (const auto& [name, value] : {std::pair("--config", line.config),
                                    {"--deepspeed", line.deepspeed},
                                    {"--html", line.html},
                                    {"--explain", line.explain},
                                    {"--svg", line.planner.svg}}) {
    if (value && value->empty()) throw InputError(fmt::format("{}: is empty; give a path", name));
  }
}

void take_short_forms(const CommandLine& line, EstimatorConfig& config) {
  train::check_short_forms(line.short_forms, config.train);
  for (const auto& [key, value] : line.short_forms) {
    std::vector<std::string>& names = config.spellings[key];
    std::erase(names, key);
    names.push_back(key.substr(key.find('.') + 1));
  }
}

}  // namespace

std::optional<CommandLine> read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  std::optional<std::string> strategy;
  program::OptionParser options(
      "unshard-estimate",
      "Estimates the memory of a training: runs two iterations of it on a device that counts "
      "bytes and holds none. unshard-estimate [CONFIG.toml] [options] [--section.key VALUE …]");
  options.add_text("--config", line.config, "the same as CONFIG.toml; else $CONFIG_FILE");
  options.add_text("--deepspeed", line.deepspeed,
                   "DeepSpeed configuration (JSON), whose keys docs/deepspeed.md lists; settings "
                   "of CONFIG.toml must not contradict it");
  options.add_text("--strategy", strategy, "single, ddp, zero1, zero2 or fsdp (parallel.strategy)");
  options.add_choice("--format", line.format, {"text", "json"}, "of what is printed");
  options.add_text("--html", line.html, "also write a page with the memory over time to this file");
  options.add_choice("--modules", line.modules, {"few", "all"},
                     "rows of the table by module: the first, the last and the highest, or all");
  options.add_choice("--framework", line.framework, frameworks(),
                     "whose engine the estimate is true of; else that of the file: pytorch for "
                     "torchtitan's, deepspeed for DeepSpeed's, and unshard for all others");
  std::optional<std::string> compare;
  options.add_text("--compare", compare,
                   "print the same training in several engines, such as unshard,pytorch, side by "
                   "side");
  options.add_text("--measured", line.measured,
                   "of a real run, such as 52.3GiB: say what could hide the difference");
  options.add_flag("--brief", line.is_brief, "print the answer alone, the first seven lines");
  options.add_text("--memory", line.memory,
                   "of a device, such as 80GB: exit code 1 if it is not enough");
  options.add_text("--margin", line.margin, "of what is needed, to be left: 15%");
  options.add_text("--limit", line.limit,
                   "of the allocator, such as 80GB: the run ends where it is exceeded");
  options.add_number("--rank", line.rank, 0, 1'000'000, "whose memory it is");
  options.add_number("--round-to", line.round_to, 1, 1 << 21,
                     "round every size up to a multiple of so many bytes; CUDA does to 512");
  options.add_text("--explain", line.explain,
                   "print each key of this file (TOML, DeepSpeed's JSON or a model's config.json), "
                   "what becomes of it, and the value used");
  options.add_choice("--keys", line.keys, config::foreign_formats(),
                     "print the table of a format's keys");
  bool has_figures = false;
  options.add_flag("--figures", has_figures,
                   "print the figures of the source documents beside ours, with the reasons; "
                   "--figures published: peaks that others have measured");
  options.add_flag("--worksheet", line.worksheet,
                   "print each formula of the book's worksheet beside what the engine measures");
  line.planner.declare(options);
  // Of one estimate only.
  for (const char* name : {"--rank", "--round-to", "--html", "--modules", "--brief", "--margin",
                           "--limit", "--measured"}) {
    for (const char* mode :
         {"--plan", "--largest", "--which-strategy", "--sweep", "--figures", "--worksheet"}) {
      options.exclude(name, mode);
    }
  }
  for (const char* other :
       {"--framework", "--format", "--html", "--modules", "--brief", "--measured", "--plan",
        "--largest", "--which-strategy", "--sweep", "--figures", "--worksheet"}) {
    options.exclude("--compare", other);
  }
  options.exclude("--measured", "--format");
  for (const char* file : {"--config", "--deepspeed", "--keys", "--figures", "--worksheet"}) {
    options.exclude("--explain", file);
  }
  options.exclude("--figures", "--format");
  for (const char* other : {"--format", "--memory", "--figures", "--plan", "--largest",
                            "--which-strategy", "--sweep"}) {
    options.exclude("--worksheet", other);
  }
  for (const char* chooses : {"--plan", "--which-strategy"}) options.exclude("--strategy", chooses);
  options.set_footer(
      "Every key of the training's configuration can be given as --section.key VALUE "
      "(unshard-train --help lists them), and these of torchtitan (--keys torchtitan lists "
      "all):\n" +
      config::describe_titan_keys() +
      "\nEnvironment: NGPU x NNODES is the number of ranks, CONFIG_FILE the file.\n"
      "Exit codes: 0 estimate and formula agree, 1 they differ or memory ran out, 2 wrong input.");
  options.keep_unknown_words();
  if (options.parse(argc, argv)) return std::nullopt;
  line.command = quoted(argc, argv);
  line.planner.memory = line.memory;
  line.planner.format = line.format;
  line.overrides = options.unknown_words();
  take_file(line);
  if (has_figures) take_figures(line);
  if (compare) take_compared(*compare, line);
  if (strategy) line.short_forms["parallel.strategy"] = *strategy;
  // A plan has a range of them, and chooses.
  if (line.planner.ranks && !line.planner.plan)
    line.short_forms["parallel.ranks"] = *line.planner.ranks;
  refuse_empty_paths(line);
  return line;
}

EstimatorConfig configure(const CommandLine& line) {
  EstimatorConfig config =
      load_estimator_config(line.config, train::words_of(line.short_forms, line.overrides),
                            config::Environment::of_process(), line.deepspeed);
  take_short_forms(line, config);
  train::check_launch(config.train);
  config.rank = line.rank;
  config.granularity = static_cast<std::size_t>(line.round_to);
  if (line.memory) {
    config.memory = static_cast<std::size_t>(plan::parse_bytes("--memory", *line.memory));
  }
  if (line.limit) {
    config.limit = static_cast<std::size_t>(plan::parse_bytes("--limit", *line.limit));
  }
  if (line.margin) config.margin = plan::parse_share("--margin", *line.margin);
  config.command = line.command;
  choose_framework(line.framework, config);
  if (config.is_real && line.planner.is_mode()) {
    const std::string key = "memory_estimation.disable_fake_mode";
    throw InputError(config.train.origin(key) +
                     ": is true, but this mode asks formulas and runs no ranks; leave it out");
  }
  if (config.is_real && line.rank != 0 && processes::launched()) {
    throw InputError(fmt::format(
        "--rank: is {}, but of processes that {} has started, the first speaks, of its own memory; "
        "leave it out, or start the program alone",
        line.rank, processes::launched()->by()));
  }
  if (line.rank >= config.train.recipe.ranks) {
    throw InputError(fmt::format("--rank: is {}, but there are {} ranks; use at most {}", line.rank,
                                 config.train.recipe.ranks, config.train.recipe.ranks - 1));
  }
  return config;
}

}  // namespace fsdp::estimate
