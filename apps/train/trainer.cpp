#include "train/trainer.h"

#include "base/check.h"
#include "comm/world.h"
#include "train/outputs.h"
#include "train/rank_trainer.h"
#include "train/ranks.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

/// What a rank has used: bytes of each kind at its peak, then the bytes it has received.
std::vector<std::int64_t> usage_of(const RunResult& rank) {
  std::vector<std::int64_t> usage(rank.categories.nbytes.begin(), rank.categories.nbytes.end());
  usage.push_back(rank.comm_bytes);
  return usage;
}

/// What a rank knows, with the highest of what all ranks used.
RunResult summarize(const config::TrainConfig& config, RunResult result,
                    const std::vector<std::int64_t>& usage) {
  result.strategy = name_of(config.recipe.strategy);
  result.world_size = config.recipe.ranks;
  for (auto next = usage.begin(); next != usage.end();) {
    Breakdown peak;
    for (std::int64_t& nbytes : peak.nbytes) nbytes = *next++;
    result.comm_bytes = std::max(result.comm_bytes, *next++);
    if (peak.total() <= result.peak_bytes) continue;
    result.peak_bytes = peak.total();
    result.categories = peak;
  }
  return result;
}

}  // namespace

RunResult run_training(const config::TrainConfig& config, const TokenData& data,
                       const RunOptions& options) {
  FSDP_CHECK(config.training.eval_every == 0 || options.validation != nullptr,
             "training.eval_every is {}, but no validation tokens were given",
             config.training.eval_every);
  OutputClaims claims;
  in_every_process([&] {
    check_tokenizer(config, config.origin("data.path"), data);
    check_length(config.origin("data.path"), data, config.sequence_length());
    if (config.training.eval_every > 0) {
      check_length(config.origin("data.validation"), *options.validation, config.sequence_length());
    }
    if (process_rank() == 0) claims = claim_outputs(config, data, options);
  });
  RunResult result;
  run_on_ranks(config, options.in_threads, [&](const Rank& rank) {
    RunResult mine = RankTrainer(config, data, options, rank).run();
    const std::vector<std::int64_t> usage =
        gather(rank.group.get(), usage_of(mine), {"usage", Phase::none});
    // If ranks are threads, the result is that of rank 0.
    if (rank.number() == process_rank()) result = summarize(config, std::move(mine), usage);
  });
  return result;
}

}  // namespace fsdp::train
