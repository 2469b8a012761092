// unshard-train: trains a language model as a configuration says.
#include "base/check.h"
#include "nn/output_file.h"
#include "nn/output_folder.h"
#include "report/chrome_trace.h"
#include "report/html_page.h"
#include "train/outputs.h"
#include "train/run_state.h"
#include "train/summary.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

constexpr int kInputError = 2;

struct CommandLine {
  std::string config;
  std::string summary;
  std::string export_folder;
  std::string picture;
  std::vector<std::string> overrides;
};

void print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void print_start(const TrainConfig& config, const TokenData& data) {
  print(fmt::format("{}: {} with {} parameters on {} ({} tokens)", config.source, config.preset,
                    config.model.parameter_count(), data.name(), data.size()));
  print(fmt::format(
      "strategy {}, {} rank(s) x {} thread(s), {} sequences of {} tokens a step in {} "
      "micro-batches",
      config.parallel.strategy, config.parallel.ranks, config.parallel.threads_per_rank,
      config.training.global_batch_size, config.sequence_length(), config.micro_batches()));
}

// An export to "." replaces the current folder: from then on only whole paths lead anywhere.
std::string whole_path(const std::string& path) {
  return path.empty() ? path : nn::resolved(path).string();
}

void draw(const report::RunRecord& record, const std::filesystem::path& folder) {
  nn::write_output_file(folder / kPicturePage, report::to_html(record));
  nn::write_output_file(folder / kPictureTrace, report::to_chrome_json(record));
  print(fmt::format("the last step: {}", (folder / kPicturePage).string()));
}

void train(const CommandLine& line) {
  const std::optional<std::filesystem::path> file =
      line.config.empty() ? std::nullopt : std::optional<std::filesystem::path>(line.config);
  const TrainConfig config = load_config(file, line.overrides);
  const TokenData data = TokenData::open(config.data, config.model.vocabulary);
  if (config.sample.tokens > 0)
    prompt_tokens(config, data);  // a bad prompt is said before the work
  print_start(config, data);

  RunOptions options;
  options.export_folder = whole_path(line.export_folder);
  options.records_last_step = !line.picture.empty();
  options.picture_folder = whole_path(line.picture);
  options.summary = whole_path(line.summary);
  options.on_note = print;
  options.on_step = [&](const StepReport& step) {
    if (step.step % config.training.log_every != 0 && step.step != step.steps) return;
    print(fmt::format("step {:>{}}/{}  loss {:.4f}  lr {:.2e}{}  {:.0f} tokens/s  peak {}",
                      step.step, std::to_string(step.steps).size(), step.steps, step.loss, step.lr,
                      config.training.clip > 0 ? fmt::format("  norm {:.3f}", step.norm) : "",
                      step.tokens_per_second, show_bytes(step.peak_bytes)));
  };
  const RunResult result = run_training(config, data, options);
  print(fmt::format("parameters sha256 {}", result.param_sha256));
  if (!result.sample.empty()) print("\n" + show_tokens(result.sample, data));
  if (!line.picture.empty()) draw(result.last_step, options.picture_folder);
  if (!line.summary.empty()) {
    nn::write_output_file(options.summary, to_json({{result, result.peak_bytes}}));
  }
}

int run(int argc, char** argv) {
  CommandLine line;
  std::string strategy;
  std::string ranks;
  CLI::App app{"Trains a language model: in one process, data parallel, or fully sharded.",
               "unshard-train"};
  app.add_option("--config", line.config, "TOML file; see apps/train/configs");
  app.add_option("--strategy", strategy, "single, ddp or fsdp (parallel.strategy)");
  app.add_option("--ranks", ranks, "number of ranks W (parallel.ranks)");
  app.add_option("--summary", line.summary, "write losses, memory and fingerprint here, as JSON");
  app.add_option("--export", line.export_folder,
                 "write the trained model here, for Hugging Face's from_pretrained");
  app.add_option("--picture", line.picture,
                 "record the last step, and write timeline.html and trace.json to this folder");
  app.footer("Every key of the configuration can be given as --section.key VALUE:\n" +
             describe_keys());
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kInputError;
  }
  line.overrides = app.remaining();
  if (!strategy.empty())
    line.overrides.insert(line.overrides.end(), {"--parallel.strategy", strategy});
  if (!ranks.empty()) line.overrides.insert(line.overrides.end(), {"--parallel.ranks", ranks});
  try {
    train(line);
    return 0;
  } catch (const InputError& error) {
    fmt::print(stderr, "unshard-train: {}\n", error.what());
    return kInputError;
  } catch (const std::exception& error) {
    fmt::print(stderr, "unshard-train: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace fsdp::train

int main(int argc, char** argv) { return fsdp::train::run(argc, argv); }
