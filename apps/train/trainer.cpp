#include "train/trainer.h"

#include "base/check.h"
#include "comm/decorators.h"
#include "comm/mpi/job.h"
#include "comm/mpi/world.h"
#include "comm/thread_world.h"
#include "train/outputs.h"
#include "train/rank_trainer.h"
#include "train/strategy.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

// A rank's group lives as long as run_ranks' body, which is longer than anything built here.
std::shared_ptr<ProcessGroup> borrow(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

/// What a rank has used: bytes of each kind at its peak, then the bytes it has received.
std::vector<std::int64_t> usage_of(const RankResult& rank) {
  std::vector<std::int64_t> usage(rank.peak.nbytes.begin(), rank.peak.nbytes.end());
  usage.push_back(rank.comm_bytes);
  return usage;
}

/// The same of all ranks, one after the other. Collective.
std::vector<std::int64_t> gather_usage(ProcessGroup& group, const RankResult& rank) {
  const std::vector<std::int64_t> mine = usage_of(rank);
  const std::int64_t count = std::ssize(mine);
  const Tensor all = Tensor::empty({count * group.size()}, DType::int64);
  group.all_gather(all, Tensor::from(mine, {count}), {"usage", Phase::none}).wait();
  return all.to_vector<std::int64_t>();
}

/// What a rank knows, and the highest of what all ranks used.
RunResult summarize(const TrainConfig& config, RankResult rank,
                    const std::vector<std::int64_t>& usage) {
  RunResult result;
  result.strategy = config.parallel.strategy;
  result.world_size = config.world_size();
  result.first_step = rank.first_step;
  result.losses = std::move(rank.losses);
  result.param_sha256 = std::move(rank.param_sha256);
  result.tokens_per_second = rank.tokens_per_second;
  result.sample = std::move(rank.sample);
  result.stopped_by = rank.stopped_by;
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

RunResult train_alone(const TrainConfig& config, const TokenData& data, const RunOptions& options,
                      Context::Options own) {
  Context context(own);
  const ContextScope scope(context);
  RankResult rank = RankTrainer(config, data, options, nullptr, nullptr).run();
  const std::vector<std::int64_t> usage = usage_of(rank);
  return summarize(config, std::move(rank), usage);
}

using World = std::function<void(const RankOptions&, const std::function<void(ProcessGroup&)>&)>;

/// Trains on the ranks that `world` starts. The result is that of the rank whose number is this
/// process's: rank 0, if ranks are threads.
RunResult train_together(const TrainConfig& config, const TokenData& data,
                         const RunOptions& options, RankOptions own, const World& world) {
  // Each rank's ledger, handed from the decorator to the body on that rank's thread.
  std::vector<std::shared_ptr<CollectiveLog>> ledgers(static_cast<std::size_t>(own.world_size));
  own.decorate = [&](std::shared_ptr<Backend> inner) {
    auto& ledger = ledgers[static_cast<std::size_t>(inner->rank())];
    ledger = std::make_shared<CollectiveLog>();
    return make_recording(std::move(inner), ledger);
  };
  RunResult result;
  world(own, [&](ProcessGroup& group) {
    const int rank = group.rank();
    const auto& ledger = ledgers[static_cast<std::size_t>(rank)];
    RankResult mine = RankTrainer(config, data, options, borrow(group), ledger).run();
    const std::vector<std::int64_t> usage = gather_usage(group, mine);
    if (rank == process_rank()) result = summarize(config, std::move(mine), usage);
  });
  return result;
}

}  // namespace

RunResult run_training(const TrainConfig& config, const TokenData& data,
                       const RunOptions& options) {
  OutputClaims claims;
  in_every_process([&] {
    check_tokenizer(config, data);
    if (process_rank() == 0) claims = claim_outputs(config, data, options);
  });
  const bool is_single = config.parallel.strategy == "single";
  const int threads = static_cast<int>(config.parallel.threads_per_rank);
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  const RankOptions own{
      .world_size = config.world_size(), .threads_per_rank = threads, .seed = seed};
  if (mpi::launched() && !is_single && !options.in_threads)
    return train_together(config, data, options, own, mpi::run_ranks);

  RunResult result;
  const auto here = [&] {
    result = is_single ? train_alone(config, data, options, {.threads = threads, .seed = seed})
                       : train_together(config, data, options, own, threads::run_ranks);
  };
  if (!mpi::launched()) {
    here();
  } else {  // the other processes wait for the first
    mpi::run_ranks({}, [&](ProcessGroup&) { here(); });
  }
  return result;
}

}  // namespace fsdp::train
