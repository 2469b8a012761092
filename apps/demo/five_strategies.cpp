#include "demo/five_strategies.h"

#include "train/bound.h"
#include "train/trainer.h"

#include <fmt/format.h>

namespace fsdp::train {

namespace {

constexpr int kStepsEach = 8;

}  // namespace

std::vector<BoundedRun> five_strategies(const Configure& configure, const TokenData& data) {
  std::vector<BoundedRun> runs;
  for (const char* strategy : {"single", "ddp", "zero1", "zero2", "fsdp"}) {
    const bool is_single = strategy == std::string("single");
    const TrainConfig config =
        configure({fmt::format("--training.steps={}", kStepsEach), "--sample.max_new_tokens=0",
                   fmt::format("--parallel.strategy={}", strategy),
                   fmt::format("--parallel.ranks={}", is_single ? 1 : 4),
                   fmt::format("--parallel.threads_per_rank={}", is_single ? 2 : 1)});
    RunOptions options;
    options.in_threads = true;
    runs.push_back({run_training(config, data, options), bound_bytes(config)});
  }
  return runs;
}

std::string five_strategies_table(const std::vector<BoundedRun>& runs) {
  std::string text = fmt::format("The five strategies, {} steps each:\n\n", kStepsEach);
  text += fmt::format("{:8} {:>2}  {:>13} {:>12}  {:>15}  {:>13}  {:>9}  {}\n", "strategy", "W",
                      "peak per rank", "the bound", "optimizer state", "received/step", "last loss",
                      "parameters");
  for (const auto& [run, bound] : runs) {
    text +=
        fmt::format("{:8} {:>2}  {:>13} {:>12}  {:>15}  {:>13}  {:>9.4f}  {:.12}\n", run.strategy,
                    run.world_size, run.peak_bytes, bound, run.categories[MemoryKind::optimizer],
                    run.comm_bytes / kStepsEach, run.losses.back(), run.param_sha256);
  }
  text.pop_back();
  return text;
}

}  // namespace fsdp::train
