// Overlap on the real clock: FSDP over two ranks whose link is slowed down until a gather takes
// about as long as a block computes, with and without prefetching. What tests prove by order, this
// shows by time.

#include "autograd/functions.h"
#include "comm/world.h"
#include "nn/transformer.h"
#include "support/throttled.h"
#include "task7_integration/integration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

using namespace fsdp;

namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 5;
constexpr int kRounds = 3;

nn::TransformerConfig model_config() {
  nn::TransformerConfig config = nn::TransformerConfig::small();
  config.num_hidden_layers = 12;
  config.max_position_embeddings = 128;
  return config;
}

/// Median seconds of a step; bytes_per_second 0 = the link as it is.
double step_seconds(int prefetch_depth, double bytes_per_second) {
  double result = 0;
  RankOptions ranks{.world_size = kRanks, .seed = 1};
  if (bytes_per_second > 0) {
    ranks.decorate = [=](std::shared_ptr<Backend> inner) {
      return std::make_shared<testing::Throttled>(
          std::move(inner), testing::LinkModel{.bytes_per_second = bytes_per_second});
    };
  }
  run_ranks(ranks, [&](ProcessGroup& group) {
    const nn::TransformerConfig config = model_config();
    nn::TransformerLM model(config);
    FullyShardOptions options;
    options.prefetch_depth = prefetch_depth;
    const auto sharded = fully_shard(model, borrowed(group), options);
    sharded->attach_optimizer(
        [] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
    const std::vector<std::int32_t> text(static_cast<std::size_t>(config.max_position_embeddings),
                                         42);
    const Tensor tokens = Tensor::from(text, {1, config.max_position_embeddings});
    std::vector<double> seconds;
    for (int step = -2; step < kSteps; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      sharded->begin_step({1, 1});
      cross_entropy(model(Variable(tokens)), tokens).backward();
      sharded->end_micro_step();
      sharded->finish_gradients();
      sharded->zero_grad();
      group.barrier({"step", Phase::none}).wait();
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      if (step >= 0) seconds.push_back(passed.count());
    }
    if (group.rank() != 0) return;
    std::sort(seconds.begin(), seconds.end());
    result = seconds[seconds.size() / 2];
  });
  return result;
}

double median_of_rounds(int prefetch_depth, double bytes_per_second) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    seconds.push_back(step_seconds(prefetch_depth, bytes_per_second));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main() {
  // Bytes a rank receives in a step: two gathers and a reduction of half of every unit.
  const double bytes = 3.0 * 4.0 / kRanks * static_cast<double>(model_config().parameter_count());
  const double compute = median_of_rounds(1, 0);
  const double balanced = bytes / compute;
  fmt::print(
      "{} ranks, {} parameters, {:.0f} MB received per step; {:.1f} ms on the unthrottled link\n",
      kRanks, model_config().parameter_count(), bytes / 1e6, compute * 1e3);
  for (const double slower : {0.5, 1.0, 2.0}) {
    const double link = balanced / slower;
    const double serial = median_of_rounds(0, link);
    const double ahead = median_of_rounds(1, link);
    fmt::print(
        "link {:7.0f} MB/s (communication / computation {:.1f}): no prefetch {:7.1f} ms, depth 1 "
        "{:7.1f} ms, ratio {:.2f}\n",
        link / 1e6, slower, serial * 1e3, ahead * 1e3, serial / ahead);
    std::fflush(stdout);
  }
}
