#include "train/command_line.h"

#include "base/check.h"
#include "comm/processes/launch.h"
#include "config/explain.h"
#include "program/command_line/option_parser.h"
#include "program/program.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::train {
namespace {

/// A launcher decides whether ranks are processes.
void check_backend(const CommandLine& line, std::int64_t ranks) {
  const auto launch = processes::launched();
  const bool is_mpi = line.backend == "mpi";
  if (launch ? is_mpi && launch->meeting : is_mpi || line.backend == "processes") {
    processes::Launch needed;
    if (!is_mpi) needed.meeting.emplace();
    throw InputError(fmt::format(
        "--backend {}: needs {}, which starts one process per rank: {} {} unshard-train … (see "
        "docs/running.md)",
        line.backend, needed.by(), needed.command(), ranks));
  }
  if (launch && line.backend == "threads") {
    throw InputError(
        fmt::format("--backend threads: {} has started this program, so ranks are processes; start "
                    "it alone",
                    launch->by()));
  }
}

}  // namespace

std::optional<CommandLine> read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  std::optional<std::string> strategy;
  std::optional<std::string> ranks;
  std::optional<std::string> device;
  program::OptionParser options(
      "unshard-train", "Trains a language model: in one process, data parallel, or fully sharded.");
  options.add_text("--config", line.config,
                   "TOML file, ours (see apps/train/configs) or torchtitan's");
  options.add_text("--deepspeed", line.deepspeed,
                   "DeepSpeed configuration (JSON), whose keys docs/deepspeed.md lists; settings "
                   "of --config must not contradict it");
  options.add_text("--strategy", strategy, "single, ddp, zero1, zero2 or fsdp (parallel.strategy)");
  options.add_text("--ranks", ranks, "number of ranks W (parallel.ranks)");
  options.add_text("--device", device, "where ranks compute: cpu or cuda (training.device)");
  options.add_choice("--backend", line.backend, {"threads", "processes", "mpi"},
                     "what ranks are: threads, or processes that a launcher starts, one each");
  options.add_text("--summary", line.summary, "write losses, memory and fingerprint here, as JSON");
  options.add_text(
      "--export", line.export_folder,
      "write the trained model here, for Hugging Face's from_pretrained; see export.*");
  options.add_text("--picture", line.picture,
                   "record the last step, and write timeline.html and trace.json to this folder");
  options.add_text("--eval", line.eval,
                   "train nothing; print loss and perplexity over this text or token file, of the "
                   "model in checkpoint.folder, or in model.from");
  for (const char* output : {"--export", "--picture"}) options.exclude("--eval", output);
  options.add_text(
      "--explain", line.explain,
      "train nothing; print each key of this file (TOML, DeepSpeed's JSON or a model's "
      "config.json), what becomes of it, and the value used");
  for (const char* other : {"--config", "--deepspeed", "--eval", "--export", "--picture"}) {
    options.exclude("--explain", other);
  }
  options.set_footer(
      "Every key of the configuration can be given as --section.key VALUE; the last one "
      "counts:\n" +
      config::describe_keys() +
      "\nExit codes: 0 done, 1 failed while running, 2 wrong input, 130 and 143 stopped by "
      "SIGINT\nand SIGTERM: after the step, with a checkpoint if there is a folder; a "
      "second one stops at once.");
  options.keep_unknown_words();
  if (options.parse(argc, argv)) return std::nullopt;
  for (const auto& [name, value] : {std::pair("--config", line.config),
                                    {"--deepspeed", line.deepspeed},
                                    {"--summary", line.summary},
                                    {"--export", line.export_folder},
                                    {"--picture", line.picture},
                                    {"--eval", line.eval},
                                    {"--explain", line.explain}}) {
    if (value && value->empty()) throw InputError(fmt::format("{}: is empty; give a path", name));
  }
  line.overrides = options.unknown_words();
  if (strategy) line.short_forms["parallel.strategy"] = *strategy;
  if (ranks) line.short_forms["parallel.ranks"] = *ranks;
  if (device) line.short_forms["training.device"] = *device;
  return line;
}

std::vector<std::string> words_of(const ShortForms& short_forms,
                                  const std::vector<std::string>& overrides) {
  std::vector<std::string> words;
  if (const auto launch = processes::launched()) {
    words = {"--parallel.ranks", std::to_string(launch->size)};
  }
  for (const auto& [key, value] : short_forms) words.insert(words.end(), {"--" + key, value});
  words.insert(words.end(), overrides.begin(), overrides.end());
  return words;
}

void check_short_forms(const ShortForms& short_forms, const config::TrainConfig& config) {
  for (const auto& [key, value] : short_forms) {
    if (config.settings.at(key) == value) continue;
    throw InputError(fmt::format("command line: {}: is {}, but --{} is {}; give one of them", key,
                                 config.settings.at(key), key.substr(key.find('.') + 1), value));
  }
}

void check_launch(const config::TrainConfig& config) {
  const auto launch = processes::launched();
  const std::int64_t ranks = config.recipe.ranks;
  if (!launch || ranks == launch->size) return;
  throw InputError(fmt::format(
      "command line: parallel.ranks: is {}, but {} has started {} process{}; leave it out, or "
      "start the program with {} {}",
      ranks, launch->by(), launch->size, launch->size == 1 ? "" : "es", launch->command(), ranks));
}

int show_explanation(const std::string& file, const std::vector<std::string>& words,
                     bool is_modeled) {
  const config::Explanation made = config::explain(
      file, words, {.is_modeled = is_modeled, .environment = config::Environment::of_process()});
  if (!made.text.empty()) program::print_line(made.text);
  if (!made.problems.empty()) throw InputError(made.problems);
  return 0;
}

/// A key that is given twice has its last value.
config::TrainConfig configure(const CommandLine& line) {
  std::vector<std::string> words = words_of(line.short_forms, line.overrides);
  if (line.eval) {  // whatever is said of steps, there are none
    words.insert(words.end(),
                 {"--data.validation", *line.eval, "--training.global_batch_size", "0"});
  }
  config::TrainConfig config = config::load_config(
      line.config, words, line.deepspeed, {.environment = config::Environment::of_process()});
  check_backend(line, config.recipe.ranks);
  check_launch(config);
  for (const auto& [key, place] : config.origins) {
    if (line.export_folder || !key.starts_with("export.")) continue;
    config.remarks.push_back(fmt::format("{}: {}: has no effect without --export", place, key));
  }
  if (line.eval) config.data.path.clear();  // it is not read
  check_short_forms(line.short_forms, config);
  return config;
}

}  // namespace fsdp::train
