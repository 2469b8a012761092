#include "train/rank_trainer.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "nn/generate.h"
#include "report/runs/short_run.h"
#include "tensor/tree_sum.h"
#include "train/run_state.h"
#include "train/sha256.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <map>
#include <utility>

namespace fsdp::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The recording of a step counts its peak anew; the run's is the highest of all.
Breakdown highest(const Breakdown& before, const Breakdown& now) {
  return now.total() > before.total() ? now : before;
}

}  // namespace

RankTrainer::RankTrainer(const TrainConfig& config, const TokenData& data,
                         const RunOptions& options, std::shared_ptr<ProcessGroup> group,
                         std::shared_ptr<Ledger> ledger)
    : config_(config),
      data_(data),
      options_(options),
      group_(std::move(group)),
      ledger_(std::move(ledger)),
      rank_(group_ == nullptr ? 0 : group_->rank()),
      world_size_(group_ == nullptr ? 1 : group_->size()),
      plan_(config.plan()),
      sampler_(data, config.training.seed, config.training.local_batch_size,
               config.sequence_length()),
      strategy_(make_strategy(config, group_)) {}

void RankTrainer::note(const std::string& text) const {
  if (rank_ == 0 && options_.on_note) options_.on_note(text);
}

RankResult RankTrainer::run() {
  RankResult result;
  resume(result);
  const std::int64_t steps = config_.training.steps;
  const std::int64_t every = config_.checkpoint.every;
  const double tokens_per_step =
      static_cast<double>(config_.training.global_batch_size * config_.sequence_length());
  double seconds = 0;
  for (std::int64_t step = result.first_step; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    StepReport report{.step = step + 1, .steps = steps};
    const bool is_recorded = options_.records_last_step && step + 1 == steps;
    report.loss = is_recorded ? record_step(step, report, result) : train_step(step, report);
    result.losses.push_back(report.loss);
    const double took = seconds_since(begin);
    seconds += took;
    report.tokens_per_second = tokens_per_step / took;
    result.peak = highest(result.peak, Context::current().tracker().peak());
    report.peak_bytes = result.peak.total();
    if (rank_ == 0 && options_.on_step) options_.on_step(report);
    if (ledger_ != nullptr) {
      result.comm_bytes += ledger_->received_bytes();
      ledger_->clear();  // a long training must not grow
    }
    // Equal on all ranks, and what comes out of it (an abort of all) too.
    FSDP_CHECK(std::isfinite(report.loss),
               "the loss of step {} is {}: training has diverged; lower schedule.lr", step + 1,
               report.loss);
    if (step + 1 == steps || (every > 0 && (step + 1) % every == 0)) save(step + 1);
  }
  // What follows is not training: its memory is not that of a step.
  result.peak = highest(result.peak, Context::current().tracker().peak());
  const auto trained = static_cast<double>(result.losses.size());
  if (seconds > 0) result.tokens_per_second = trained * tokens_per_step / seconds;
  if (!options_.export_folder.empty()) {
    strategy_->save_full(options_.export_folder);
    note(fmt::format("exported {}", options_.export_folder));
  }
  result.param_sha256 = fingerprint();
  result.sample = sample();
  return result;
}

float RankTrainer::record_step(std::int64_t step, StepReport& report, RankResult& result) {
  if (config_.parallel.strategy != "fsdp") report::name_units(strategy_->model());
  result.peak = highest(result.peak, Context::current().tracker().peak());
  if (group_ != nullptr) group_->barrier({}).wait();  // all ranks share their zero of time
  report::RankRecorder recorder(Context::current());
  const float loss = train_step(step, report);
  result.last_step = recorder.finish();
  return loss;
}

float RankTrainer::train_step(std::int64_t step, StepReport& report) {
  optim::GradientEngine& gradients = strategy_->gradients();
  std::vector<float> losses;
  gradients.begin_step(plan_);
  for (int m = 0; m < plan_.micro_steps; ++m) {
    const MicroBatch micro = sampler_.micro_batch(step, plan_.micro_batch(m, rank_, world_size_));
    const Variable loss = cross_entropy(strategy_->model()(Variable(micro.tokens)), micro.targets);
    losses.push_back(static_cast<float>(loss.data().item()));
    loss.backward();
    gradients.end_micro_step();
  }
  gradients.finish_gradients();
  if (config_.training.clip > 0) report.norm = strategy_->clip(config_.training.clip);
  report.lr = config_.schedule.at(step);
  strategy_->step(report.lr);
  gradients.zero_grad();
  return mean_loss(losses);
}

float RankTrainer::mean_loss(const std::vector<float>& mine) {
  const auto per_rank = static_cast<std::int64_t>(mine.size());
  std::vector<float> gathered = mine;
  if (group_ != nullptr) {
    const AllocationScope as_temp(MemoryKind::temp);
    const Tensor in = Tensor::from(mine, {per_rank});
    const Tensor out = Tensor::empty({per_rank * world_size_}, DType::float32);
    group_->all_gather(out, in, {"loss", Phase::loss}).wait();
    gathered = out.to_vector<float>();
  }
  std::vector<float> by_j(gathered.size());
  for (int rank = 0; rank < world_size_; ++rank) {
    for (int m = 0; m < plan_.micro_steps; ++m) {
      by_j[static_cast<std::size_t>(plan_.micro_batch(m, rank, world_size_))] =
          gathered[static_cast<std::size_t>(rank * per_rank + m)];
    }
  }
  return tree_sum(by_j) * (1.0F / static_cast<float>(by_j.size()));
}

void RankTrainer::resume(RankResult& result) {
  if (config_.checkpoint.folder.empty() || !config_.checkpoint.resume) return;
  const auto latest = nn::CheckpointFolder(config_.checkpoint.folder).latest();
  if (!latest) return;
  result.first_step = step_of(strategy_->load_checkpoint(*latest), *latest);
  note(fmt::format("resumed from {} after step {}", latest->string(), result.first_step));
}

void RankTrainer::save(std::int64_t steps_done) {
  if (config_.checkpoint.folder.empty()) return;
  const nn::CheckpointFolder folder(config_.checkpoint.folder);
  strategy_->save_checkpoint(folder, steps_done, describe_run(config_, data_, steps_done));
  note(fmt::format("saved {}", folder.final(steps_done).string()));
}

std::string RankTrainer::fingerprint() {
  std::map<std::string, std::string> digests;
  strategy_->for_each_full_parameter([&](const std::string& path, const Tensor& full) {
    digests[path] = sha256_of({full.raw(), full.nbytes()});
  });
  std::string lines;
  for (const auto& [path, digest] : digests) lines += path + " " + digest + "\n";
  return sha256_of(std::as_bytes(std::span(lines)));
}

std::vector<std::int32_t> RankTrainer::sample() {
  const SampleConfig& options = config_.sample;
  if (options.tokens == 0) return {};
  Generator generator(static_cast<std::uint64_t>(config_.training.seed));
  return nn::generate(strategy_->model(), prompt_tokens(config_, data_),
                      static_cast<int>(options.tokens), config_.sequence_length(),
                      {options.temperature, static_cast<int>(options.top_k)}, generator);
}

}  // namespace fsdp::train
