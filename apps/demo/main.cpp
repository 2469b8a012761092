// The main job: a small model learns this repository's own text, in one process and sharded over 1,
// 2 and 4 ranks, and every bit of every parameter is the same at the end. Under a launcher, ranks
// are threads first, and then processes.
#include "comm/processes/launch.h"
#include "comm/world.h"
#include "demo/tables.h"
#include "estimate/device_bound.h"
#include "io/output_file.h"
#include "program/command_line/option_parser.h"
#include "program/program.h"
#include "report/chrome_trace.h"
#include "report/html_page.h"
#include "report/runs/short_run.h"
#include "train/bound.h"
#include "train/sample.h"
#include "train/summary.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

struct Job {
  const char* strategy;
  int ranks;
  int threads;  // of a rank
  bool in_threads = true;

  std::string name() const { return std::string(strategy) + (in_threads ? "" : " (mpi)"); }
};

// One process and the largest world use both cores of a small machine; the batch is cut into eight
// micro-batches each time.
std::vector<Job> jobs() {
  std::vector<Job> all = {{"single", 1, 2}, {"fsdp", 1, 2}, {"fsdp", 2, 1}, {"fsdp", 4, 1}};
  const int processes =
      processes::launched().value_or(processes::Launch{.rank = 0, .size = 0}).size;
  for (const Job& job : std::vector(all.begin() + 1, all.end())) {
    if (job.ranks <= processes) all.push_back({job.strategy, job.ranks, job.threads, false});
  }
  return all;
}

/// What the user asks for.
struct Wish {
  std::string param = "float32";
  std::string reduce = "float32";
  std::string device = "cpu";
  bool is_brief = false;  // for a device that is as slow as a stand-in for one

  int steps() const { return is_brief ? 4 : 100; }
};

config::TrainConfig configure(const Wish& wish, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"--model.preset=tiny",
                                    "--training.device=" + wish.device,
                                    "--training.steps=" + std::to_string(wish.steps()),
                                    "--training.local_batch_size=1",
                                    "--training.global_batch_size=8",
                                    "--lr_scheduler.kind=warmup_cosine",
                                    "--optimizer.lr=4e-3",
                                    "--lr_scheduler.min_lr=4e-4",
                                    "--lr_scheduler.warmup_steps=8",
                                    "--sample.max_new_tokens=240",
                                    "--sample.prompt=The ",
                                    "--training.mixed_precision_param=" + wish.param,
                                    "--training.mixed_precision_reduce=" + wish.reduce};
  if (wish.is_brief) {
    words.insert(words.end(), {"--model.preset=nano", "--model.vocab_size=256",
                               "--optimizer.lr=4e-2", "--lr_scheduler.min_lr=4e-3",
                               "--lr_scheduler.warmup_steps=1", "--sample.max_new_tokens=8"});
  }
  words.insert(words.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, words);
}

config::TrainConfig configure(const Job& job, const Wish& wish) {
  return configure(wish, {fmt::format("--parallel.strategy={}", job.strategy),
                          fmt::format("--parallel.ranks={}", job.ranks),
                          fmt::format("--parallel.threads_per_rank={}", job.threads)});
}

std::int64_t bound_of(const config::TrainConfig& config) {
  return config.training.device == "cpu" ? bound_bytes(config)
                                         : estimate::device_bound_bytes(config);
}

/// At most eight steps with each strategy; all but the first over four ranks, which are threads.
std::vector<BoundedRun> five_strategies(const Wish& wish, const TokenData& data) {
  constexpr int kMostSteps = 8;
  std::vector<BoundedRun> runs;
  for (const std::string strategy : {"single", "ddp", "zero1", "zero2", "fsdp"}) {
    const bool is_single = strategy == "single";
    const config::TrainConfig config = configure(
        wish, {fmt::format("--training.steps={}", std::min(wish.steps(), kMostSteps)),
               "--sample.max_new_tokens=0", fmt::format("--parallel.strategy={}", strategy),
               fmt::format("--parallel.ranks={}", is_single ? 1 : 4),
               fmt::format("--parallel.threads_per_rank={}", is_single ? 2 : 1)});
    RunOptions options;
    options.in_threads = true;
    runs.push_back({run_training(config, data, options), bound_of(config)});
  }
  return runs;
}

using program::print_line;

// What must hold, each as a sentence; false if one does not. `most`: how much of the first loss may
// be left.
bool judge(const std::vector<BoundedRun>& runs, const std::vector<BoundedRun>& strategies,
           float most) {
  bool good = true;
  const auto say = [&](bool holds, const std::string& what) {
    print_line(fmt::format("{}  {}", holds ? "yes" : "NO ", what));
    good = good && holds;
  };
  print_line("");
  say(are_bit_identical(runs), "every loss and every parameter is the same, to the last bit");
  bool below = true;
  for (const auto& [run, bound] : runs) below = below && run.peak_bytes <= bound;
  for (const auto& [run, bound] : strategies) below = below && run.peak_bytes <= bound;
  say(below, "no rank needed more memory than the formula allows");
  const auto as_foreseen = [](const BoundedRun& each) {
    return each.run.comm_bytes == each.run.comm_formula_bytes;
  };
  say(std::ranges::all_of(runs, as_foreseen) && std::ranges::all_of(strategies, as_foreseen),
      "every rank received the bytes of the formula");
  say(are_bit_identical(strategies), "all five strategies end with the same bits");
  // The mean of several steps: the loss of one batch may lie far from its neighbors'.
  const std::vector<float>& losses = runs.front().run.losses;
  const auto last = std::min<std::ptrdiff_t>(10, std::ssize(losses) / 2);
  const float mean =
      std::accumulate(losses.end() - last, losses.end(), 0.0F) / static_cast<float>(last);
  say(mean < most * losses.front(), "the loss fell");
  return good;
}

// One more step over two ranks, recorded: what every stream did, and who held which bytes when.
void draw(const std::filesystem::path& folder, const config::TrainConfig& config) {
  report::ShortRun step;
  step.recipe.precision = config.recipe.precision;
  const report::RunRecord record = report::record_threads(step);
  io::write_output_file(folder / "timeline.html", report::to_html(record));
  io::write_output_file(folder / "trace.json", report::to_chrome_json(record));
  print_line(fmt::format("A picture of one step: {} (open it in a browser)",
                         (folder / "timeline.html").string()));
  print_line(fmt::format("The same for ui.perfetto.dev: {}", (folder / "trace.json").string()));
}

std::filesystem::path demo_folder() {
  return std::filesystem::path(FSDP_PROJECT_ROOT) / "build" / "demo";
}

/// Says what came out, and writes it down.
int report(const std::vector<Job>& jobs, const std::vector<BoundedRun>& runs,
           const std::vector<BoundedRun>& strategies, const TokenData& data,
           const config::TrainConfig& config, const Wish& wish) {
  const std::filesystem::path folder = demo_folder();
  std::vector<std::string> names;
  names.reserve(jobs.size());
  for (const Job& job : jobs) names.push_back(job.name());
  print_line("\n" + trainings_table(names, runs));
  print_line("\n" + five_strategies_table(strategies));
  print_line("\nWhat the model writes now:\n\n" + show_tokens(runs.back().run.sample, data));
  const bool good = judge(runs, strategies, wish.is_brief ? 0.98F : 0.7F);
  io::write_output_file(folder / "summary.json", to_json(runs));
  io::write_output_file(folder / "strategies.json", to_json(strategies));
  print_line(fmt::format("\nWritten: {} and strategies.json", (folder / "summary.json").string()));
  // A picture shows what the CPU does.
  if (wish.device == "cpu") draw(folder, config);
  return good ? 0 : 1;
}

int demonstrate(const Wish& wish) {
  const bool speaks = process_rank() == 0;
  in_every_process([&] {
    for (const char* name : {"summary.json", "strategies.json", "timeline.html", "trace.json"}) {
      if (speaks) io::probe_file(demo_folder() / name);
    }
  });
  const TokenData data =
      TokenData::from_text(source_text(FSDP_PROJECT_ROOT), "the text of this repository", 256);
  const std::vector<Job> all = jobs();
  const config::TrainConfig first = configure(all.front(), wish);
  print_line(fmt::format("A transformer with {} parameters reads {} ({} bytes):",  //
                         first.model.parameter_count(), data.name(), data.size()));
  print_line(fmt::format("{} steps of {} sequences of {} bytes, in {} micro-batches.",
                         first.training.steps, first.training.global_batch_size,
                         first.sequence_length(), first.micro_batches()));
  if (wish.param != "float32" || wish.reduce != "float32") {
    print_line(
        fmt::format("It computes in {}, and gradients are summed in {}.", wish.param, wish.reduce));
  }
  std::vector<BoundedRun> runs;
  for (const Job& job : all) {
    const config::TrainConfig config = configure(job, wish);
    RunOptions options;
    options.in_threads = job.in_threads;
    options.on_step = [&](const StepReport& step) {
      if (step.step % (wish.steps() / (wish.is_brief ? 2 : 5)) != 0) return;
      print_line(fmt::format("  {} W={}: step {}/{}, loss {:.4f}", job.name(), job.ranks, step.step,
                             step.steps, step.loss));
    };
    runs.push_back({run_training(config, data, options), bound_of(config)});
  }
  const std::vector<BoundedRun> strategies = five_strategies(wish, data);
  return speaks ? report(all, runs, strategies, data, first, wish) : 0;
}

int run(int argc, char** argv) {
  program::OptionParser options("unshard-demo",
                                "Trains a small model, alone and sharded, and compares every bit.");
  Wish wish;
  const std::vector<std::string> formats = model_formats();
  options.add_choice("--mixed-precision-param", wish.param, formats,
                     "what the model computes in, beside masters in float32");
  options.add_choice("--mixed-precision-reduce", wish.reduce, formats,
                     "what gradients are summed in");
  options.add_choice("--device", wish.device, {"cpu", "cuda"}, "where ranks compute");
  options.add_flag("--brief", wish.is_brief,
                   "a smaller model and fewer steps, for the stand-in for a card");
  if (const auto code = options.parse(argc, argv)) return *code;
  return demonstrate(wish);
}

}  // namespace
}  // namespace fsdp::train

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-demo", [&] { return fsdp::train::run(argc, argv); });
}
