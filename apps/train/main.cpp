// unshard-train: trains a language model as a configuration says.
#include "comm/world.h"
#include "io/output_file.h"
#include "io/output_folder.h"
#include "program/memory.h"
#include "program/program.h"
#include "program/stop_signals.h"
#include "report/chrome_trace.h"
#include "report/html_page.h"
#include "report/runs/gather_ranks.h"
#include "report/runs/short_run.h"
#include "train/command_line.h"
#include "train/evaluation.h"
#include "train/evaluator.h"
#include "train/event_file.h"
#include "train/memory_check.h"
#include "train/metrics_file.h"
#include "train/outputs.h"
#include "train/sample.h"
#include "train/summary.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace fsdp::train {
namespace {

using program::print_line;

// The files of a picture, in its folder.
constexpr const char* kPicturePage = "timeline.html";
constexpr const char* kPictureTrace = "trace.json";

/// A training or an evaluation that can begin.
struct Prepared {
  CommandLine line;
  config::TrainConfig config;
  std::optional<TokenData> data;  // none: --eval
  std::optional<TokenData> validation;
  std::optional<io::Detokenizer> detokenizer;  // of the sample
};

/// "fsdp", "fsdp, 2 replicas of 4 shards"
std::string placement_of(const config::TrainConfig& config) {
  const optim::Recipe& recipe = config.recipe;
  if (recipe.replicas == 1) return name_of(recipe.strategy);
  return fmt::format("{}, {} replicas of {} shard{}", name_of(recipe.strategy), recipe.replicas,
                     recipe.shards(), recipe.shards() == 1 ? "" : "s");
}

void print_start(const config::TrainConfig& config, const TokenData& data) {
  print_line(fmt::format("{}: {} with {} parameters on {} ({} tokens)", config.source,
                         config.model_name(), config.model.parameter_count(), data.name(),
                         data.size()));
  print_line(fmt::format(
      "strategy {}, {} rank(s) x {} thread(s), {} sequences of {} tokens a step in {} "
      "micro-batches",
      placement_of(config), config.recipe.ranks, config.parallel.threads_per_rank,
      config.training.global_batch_size, config.sequence_length(), config.micro_batches()));
  const DType param = config.recipe.precision.param_dtype_for(DType::float32);
  const DType sums = config.recipe.precision.reduce_dtype_for(DType::float32);
  if (param != DType::float32 || sums != DType::float32) {
    print_line(fmt::format("masters in float32, the model in {}, sums of gradients in {}",
                           name_of(param), name_of(sums)));
  }
  if (config.recipe.has_lora()) {
    const std::int64_t base = config.model.parameter_count(), trained = config.lora_parameters();
    print_line(fmt::format(
        "LoRA of rank {} on {}: {} parameters are trained, {:.4f} % of {}", config.recipe.lora.rank,
        fmt::join(config.recipe.lora.targets, ","), trained,
        100 * static_cast<double>(trained) / static_cast<double>(base + trained), base + trained));
  }
  for (const std::string& remark : config.remarks) print_line("note: " + remark);
}

// An export to "." replaces the current folder: from then on only whole paths lead anywhere.
std::string whole_path(const std::optional<std::string>& path) {
  return path ? io::resolved(*path).string() : "";
}

void warn_if_replaced(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::current_path(error).empty()) return;  // it is gone: it has no name
  print_line(
      fmt::format("note: the export replaced the current folder; enter it anew (cd {})", folder));
}

/// A picture of the last step, to be filled by the ranks.
report::RunRecord empty_record(const config::TrainConfig& config) {
  report::RunRecord record;
  record.world_size = config.recipe.ranks;
  record.title = fmt::format("{} over {} rank{}, {}", config.model_name(), record.world_size,
                             record.world_size == 1 ? "" : "s", placement_of(config));
  record.ranks.resize(static_cast<std::size_t>(record.world_size));
  return record;
}

void draw(const report::RunRecord& record, const std::filesystem::path& folder) {
  io::write_output_file(folder / kPicturePage, report::to_html(record));
  io::write_output_file(folder / kPictureTrace, report::to_chrome_json(record));
  print_line(fmt::format("the last step: {}", (folder / kPicturePage).string()));
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Trains until the end, or until a signal. When the reader of the output has gone, the rest is
/// neither printed nor trained; but what was trained is saved.
RunResult train_until_stopped(const config::TrainConfig& config, const TokenData& data,
                              RunOptions options) {
  std::optional<program::StopSignals> signals(std::in_place);
  print_start(config, data);
  bool is_closed = false;
  options.on_note = [&](const std::string& note) {
    try {
      if (!is_closed) print_line(note);
    } catch (const program::OutputClosed&) {
      is_closed = true;
    }
  };
  const bool clips = config.recipe.clip > 0;
  std::optional<EventFile> events;
  std::optional<MetricsFile> metrics;
  options.on_step = [&](const StepReport& step) {
    if (!config.tensorboard.empty()) {
      if (!events) events.emplace(config.tensorboard, step.step - 1, seconds_since_1970());
      events->add(step.step, scalars_of(step, clips), seconds_since_1970());
    }
    if (!config.metrics_file.empty()) {
      if (!metrics) metrics.emplace(config.metrics_file, step.step - 1);
      metrics->add(step, clips);
    }
    const bool is_due = step.step % config.log_freq == 0 || step.step == step.steps;
    if (is_due || step.validation_loss) {
      options.on_note(describe(step, clips));
      if (config.wall_clock_breakdown) options.on_note(describe(step.seconds));
    }
  };
  options.poll_stop = [&] { return is_closed ? SIGPIPE : signals->poll(); };
  options.on_trained = [&] { signals.reset(); };
  RunResult result = run_training(config, data, options);
  if (is_closed) throw program::OutputClosed();
  return result;
}

/// Measured and foreseen, of a rank and step.
void print_received(const RunResult& result) {
  const auto steps = static_cast<std::int64_t>(result.losses.size());
  if (steps == 0 || result.world_size == 1) return;
  print_line(fmt::format("a rank received {} bytes per step; the formula says {}",
                         result.comm_bytes / steps, result.comm_formula_bytes / steps));
}

int end_early(const config::TrainConfig& config, const RunResult& result) {
  const auto done = result.first_step + static_cast<std::int64_t>(result.losses.size());
  print_line(fmt::format("stopped by {} after step {}/{}; {}",
                         program::name_of_signal(result.stopped_by), done, config.training.steps,
                         config.checkpoint.folder.empty()
                             ? "nothing was saved, because there is no checkpoint.folder"
                             : "the same command goes on from there"));
  return program::kSignalled + result.stopped_by;
}

// A bad prompt or tokenizer is said before the work.
void prepare_sample(Prepared& prepared) {
  config::TrainConfig& config = prepared.config;
  if (config.sample.max_new_tokens == 0) return;
  prompt_tokens(config, *prepared.data);
  if (!prepared.data->is_text() && config.origins.contains("sample.prompt")) {
    config.remarks.push_back(config.origin("sample.prompt") +
                             ": has no effect with a token file, whose first tokens the sample "
                             "begins with");
  }
  prepared.detokenizer = find_detokenizer(config, *prepared.data);
  if (prepared.detokenizer && !prepared.detokenizer->obstacle().empty()) {
    config.remarks.push_back("the sample will be numbers: " + prepared.detokenizer->obstacle());
    prepared.detokenizer.reset();
  }
}

Prepared prepare(CommandLine line) {
  config::TrainConfig config = configure(line);
  check_memory(config, free_memory(config), line.eval ? Purpose::evaluation : Purpose::training);
  Prepared prepared{std::move(line), std::move(config), {}, {}, {}};
  const config::DataConfig& data = prepared.config.data;
  const std::int64_t vocabulary = prepared.config.model.vocab_size;
  if (prepared.line.eval) {
    prepared.validation = TokenData::open_validation(data, vocabulary, "--eval");
    return prepared;
  }
  if (prepared.config.training.eval_every > 0) {
    prepared.validation = TokenData::open_validation(data, vocabulary);
  }
  prepared.data = TokenData::open(data, vocabulary);
  if (prepared.validation) check_same_kind(prepared.config, *prepared.data, *prepared.validation);
  prepare_sample(prepared);
  return prepared;
}

int evaluate(const Prepared& prepared) {
  const config::TrainConfig& config = prepared.config;
  const TokenData& data = *prepared.validation;
  const std::filesystem::path summary = whole_path(prepared.line.summary);
  in_every_process([&] {
    if (prepared.line.summary && process_rank() == 0) probe_files({{"--summary", summary}});
  });
  const EvaluationResult result = run_evaluation(config, data, print_line);
  print_line(fmt::format("{}: {} windows of {} tokens: loss {}, perplexity {:.6g}", data.name(),
                         result.windows, config.sequence_length(), result.loss,
                         perplexity(result.loss)));
  if (prepared.line.summary && process_rank() == 0) {
    io::write_output_file(summary, to_json(config, data, result));
  }
  return 0;
}

int train(const Prepared& prepared) {
  const CommandLine& line = prepared.line;
  const config::TrainConfig& config = prepared.config;
  const TokenData& data = *prepared.data;
  RunOptions options;
  if (prepared.validation) options.validation = &*prepared.validation;
  options.export_folder = whole_path(line.export_folder);
  const std::filesystem::path summary = whole_path(line.summary);
  const std::filesystem::path picture = whole_path(line.picture);
  const std::filesystem::path events = io::resolved(config.tensorboard);
  report::RunRecord record = empty_record(config);
  if (line.summary) options.planned_files.push_back({"--summary", summary});
  if (!config.tensorboard.empty()) {
    options.planned_files.push_back({"metrics.tensorboard", events / "events"});
  }
  if (!config.metrics_file.empty()) {
    options.planned_files.push_back(
        {"metrics.file", io::resolved(config.metrics_file), MetricsFile::probe});
  }
  if (line.picture) {
    options.planned_files.push_back({"--picture", picture / kPicturePage});
    options.planned_files.push_back({"--picture", picture / kPictureTrace});
    options.around_last_step = [&](nn::TransformerLM& model, const std::function<void()>& step) {
      if (config.recipe.strategy != optim::Strategy::fsdp) report::name_units(model);
      report::record_rank(record, step);
    };
    options.on_finished = [&](ProcessGroup* group) {
      if (group != nullptr) report::gather_ranks(record, *group);
    };
  }
  const RunResult result = train_until_stopped(config, data, options);
  if (result.stopped_by != 0) return end_early(config, result);
  print_received(result);
  print_line(fmt::format("parameters sha256 {}", result.param_sha256));
  if (!result.sample.empty())
    print_line("\n" + show_tokens(result.sample, data, prepared.detokenizer));
  if (line.picture && result.losses.empty()) {
    print_line("no step was left to train, so there is no picture of the last one");
  } else if (line.picture && process_rank() == 0) {
    draw(record, picture);
  }
  if (line.summary && process_rank() == 0) {
    io::write_output_file(summary, to_json({{result, result.peak_bytes}}));
  }
  if (line.export_folder && process_rank() == 0) warn_if_replaced(options.export_folder);
  return 0;
}

int run(int argc, char** argv) {
  std::optional<Prepared> prepared;
  std::optional<CommandLine> line;
  in_every_process([&] {
    line = read_command_line(argc, argv);
    if (line && !line->explain) prepared.emplace(prepare(*line));
  });
  if (!line) return 0;
  if (line->explain) {
    if (process_rank() != 0) return 0;
    return show_explanation(*line->explain, words_of(line->short_forms, line->overrides),
                            /*is_modeled=*/false);
  }
  return prepared->line.eval ? evaluate(*prepared) : train(*prepared);
}

}  // namespace
}  // namespace fsdp::train

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-train", [&] { return fsdp::train::run(argc, argv); });
}
