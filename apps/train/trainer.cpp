#include "train/trainer.h"

#include "base/check.h"
#include "comm/decorators.h"
#include "comm/thread_world.h"
#include "train/outputs.h"
#include "train/rank_trainer.h"
#include "train/strategy.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

// A rank's group lives as long as run_ranks' body, which is longer than anything built here.
std::shared_ptr<ProcessGroup> borrow(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

}  // namespace

RunResult run_training(const TrainConfig& config, const TokenData& data,
                       const RunOptions& options) {
  const OutputClaims claims = claim_outputs(config, data, options);
  const int world_size = config.world_size();
  const int threads = static_cast<int>(config.parallel.threads_per_rank);
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  std::vector<RankResult> ranks(static_cast<std::size_t>(world_size));
  if (config.parallel.strategy == "single") {
    Context context({.threads = threads, .seed = seed});
    const ContextScope scope(context);
    ranks[0] = RankTrainer(config, data, options, nullptr, nullptr).run();
  } else {
    // Each rank's ledger, handed from the decorator to the body on that rank's thread.
    std::vector<std::shared_ptr<CollectiveLog>> ledgers(static_cast<std::size_t>(world_size));
    RankOptions rank_options{.world_size = world_size, .threads_per_rank = threads, .seed = seed};
    rank_options.decorate = [&](std::shared_ptr<Backend> inner) {
      auto& ledger = ledgers[static_cast<std::size_t>(inner->rank())];
      ledger = std::make_shared<CollectiveLog>();
      return make_recording(std::move(inner), ledger);
    };
    run_ranks(rank_options, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      ranks[rank] = RankTrainer(config, data, options, borrow(group), ledgers[rank]).run();
    });
  }

  RunResult result;
  result.strategy = config.parallel.strategy;
  result.world_size = world_size;
  result.first_step = ranks[0].first_step;
  result.losses = std::move(ranks[0].losses);
  result.param_sha256 = std::move(ranks[0].param_sha256);
  result.tokens_per_second = ranks[0].tokens_per_second;
  result.sample = std::move(ranks[0].sample);
  result.stopped_by = ranks[0].stopped_by;
  for (const RankResult& rank : ranks) {
    result.comm_bytes = std::max(result.comm_bytes, rank.comm_bytes);
    if (rank.peak.total() > result.peak_bytes) {
      result.peak_bytes = rank.peak.total();
      result.categories = rank.peak;
    }
  }
  return result;
}

}  // namespace fsdp::train
