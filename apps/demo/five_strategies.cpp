#include "demo/five_strategies.h"

#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fsdp::train {

namespace {

constexpr std::int64_t kMostSteps = 8;

}  // namespace

std::vector<BoundedRun> five_strategies(const Configure& configure, const Bound& bound,
                                        const TokenData& data) {
  std::vector<BoundedRun> runs;
  for (const char* strategy : {"single", "ddp", "zero1", "zero2", "fsdp"}) {
    const bool is_single = strategy == std::string("single");
    const std::int64_t steps = std::min(configure({}).training.steps, kMostSteps);
    const config::TrainConfig config =
        configure({fmt::format("--training.steps={}", steps), "--sample.max_new_tokens=0",
                   fmt::format("--parallel.strategy={}", strategy),
                   fmt::format("--parallel.ranks={}", is_single ? 1 : 4),
                   fmt::format("--parallel.threads_per_rank={}", is_single ? 2 : 1)});
    RunOptions options;
    options.in_threads = true;
    runs.push_back({run_training(config, data, options), bound(config)});
  }
  return runs;
}

}  // namespace fsdp::train
