#include "train/rank_trainer.h"

#include "base/check.h"
#include "comm/world.h"
#include "io/sharded_checkpoint.h"
#include "nn/generate.h"
#include "tensor/ops.h"
#include "tensor/tree_sum.h"
#include "train/bound.h"
#include "train/fingerprint.h"
#include "train/run_state.h"
#include "train/sample.h"
#include "train/start.h"
#include "train/stop_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace fsdp::train {
namespace {

constexpr const char* kSkipped = "loss_scale_skipped_steps";
constexpr int kMostInARow = 20;  // skipped steps at a scale that stays

void restore(optim::LossScaler& scaler, const strategies::Metadata& metadata,
             const std::filesystem::path& folder) {
  try {
    scaler.restore(metadata);
  } catch (const Error& error) {
    throw InputError(fmt::format("{}: {}; it is damaged, go on from another checkpoint",
                                 folder.string(), error.what()));
  }
}

/// As the keys export.* say.
io::HfExport export_of(const config::TrainConfig& config) {
  return {.dtype = dtype_named(config.exported.dtype),
          .max_shard_size = static_cast<std::uint64_t>(config.exported.max_shard_size),
          .extras = config.extras};
}

/// Of a rank that is alone, nothing.
std::int64_t received_by(const ProcessGroup* group) {
  return group == nullptr ? 0 : group->total_received();
}

/// Who watches a step may count its peak anew; the run's is the highest of all.
Breakdown highest(const Breakdown& before, const Breakdown& now) {
  return now.total() > before.total() ? now : before;
}

}  // namespace

RankTrainer::RankTrainer(const config::TrainConfig& config, const TokenData& data,
                         const RunOptions& options, const Rank& rank)
    : config_(config),
      data_(data),
      options_(options),
      group_(rank.group),
      rank_(rank.number()),
      world_size_(rank.world_size()),
      plan_(config.recipe.plan()),
      sampler_(data, config.training.seed, config.training.local_batch_size,
               config.sequence_length()),
      trained_(strategies::make_trained_model(config, group_)),
      scaler_(config.loss_scaler()),
      losses_(static_cast<std::size_t>(plan_.micro_steps)) {
  if (!Context::current().device().host_can_read()) {
    const AllocationScope as_temp(MemoryKind::temp);
    device_losses_ = Tensor::empty({plan_.micro_steps});
  }
  if (config.training.eval_every == 0) return;
  evaluator_.emplace(*options.validation, config.training.local_batch_size,
                     config.sequence_length(), group_.get());
}

void RankTrainer::note(const std::string& text) const {
  if (rank_ == 0 && options_.on_note) options_.on_note(text);
}

RunResult RankTrainer::run() {
  RunResult result;
  begin(result);
  const std::int64_t skipped_before = skipped_;
  const std::int64_t steps = config_.training.steps;
  const std::int64_t interval = config_.checkpoint.interval;
  const auto tokens_per_step =
      static_cast<double>(config_.training.global_batch_size * config_.sequence_length());
  const std::int64_t received = received_bytes_per_step(config_);
  const std::int64_t received_if_skipped = received_bytes_per_step(config_, true);
  double seconds = 0, elapsed = 0;
  StopWatch since_last;
  for (std::int64_t step = result.first_step; step < steps && result.stopped_by == 0; ++step) {
    const std::int64_t received_before = received_by(group_.get());
    StopWatch watch;
    StepReport report{.step = step + 1, .steps = steps};
    const bool is_watched = options_.around_last_step && step + 1 == steps;
    const StepOutcome outcome =
        is_watched ? last_step(step, report, result) : train_step(step, report);
    report.loss = outcome.loss;
    result.losses.push_back(report.loss);
    const double took = watch.lap();
    seconds += took;
    report.tokens_per_second = tokens_per_step / took;
    result.comm_bytes += received_by(group_.get()) - received_before;
    result.comm_formula_bytes += report.is_skipped ? received_if_skipped : received;
    if (goes_on(outcome) && config_.evaluates_after(step + 1)) {
      report.validation_loss = evaluate(step + 1, result);
    }
    result.categories = highest(result.categories, Context::current().tracker().peak());
    report.peak_bytes = result.categories.total();
    report.done = std::ssize(result.losses);
    report.elapsed = elapsed += since_last.lap();
    if (rank_ == 0 && options_.on_step) options_.on_step(report);
    check_step(step + 1, outcome);
    result.stopped_by = outcome.stop;
    const bool is_due = interval > 0 && (step + 1) % interval == 0;
    if (step + 1 == steps || is_due || outcome.stop != 0) save(step + 1);
  }
  note_skipped(std::ssize(result.losses), skipped_ - skipped_before);
  if (rank_ == process_rank() && options_.on_trained) options_.on_trained();
  // What follows is not training: its memory is not that of a step.
  result.categories = highest(result.categories, Context::current().tracker().peak());
  const auto trained = static_cast<double>(result.losses.size());
  if (seconds > 0) result.tokens_per_second = trained * tokens_per_step / seconds;
  if (result.stopped_by == 0) finish(result);
  return result;
}

void RankTrainer::finish(RunResult& result) {
  if (!options_.export_folder.empty()) {
    check_parameters(config_.training.steps);
    export_model();
  }
  result.param_sha256 = fingerprint();
  result.sample = sample();
  if (options_.on_finished) options_.on_finished(group_.get());
}

void RankTrainer::export_model() {
  const std::string& folder = options_.export_folder;
  const std::string& saved = config_.checkpoint.folder;
  std::optional<strategies::Metadata> state;
  if (config_.exported.optimizer) state = metadata_after(config_.training.steps);
  try {
    for (const std::string& missing :
         save_full(*trained_, folder, export_of(config_), std::move(state)))
      note("note: " + missing);
  } catch (const InputError& error) {
    const bool does_not_fit = dynamic_cast<const io::ValueTooLarge*>(&error) != nullptr;
    throw InputError(fmt::format(
        "--export: {}: {}{}", folder, error.what(),
        saved.empty() ? "; the trained model is lost, because there is no checkpoint.folder"
                      : fmt::format("; the trained model is in the checkpoint.folder {}: the same "
                                    "command{} exports it",
                                    saved, does_not_fit ? " with another --export.dtype" : "")));
  }
  note(fmt::format("exported {}", folder));
}

StepOutcome RankTrainer::last_step(std::int64_t step, StepReport& report, RunResult& result) {
  result.categories = highest(result.categories, Context::current().tracker().peak());
  if (group_ != nullptr) group_->barrier({}).wait();
  StepOutcome outcome;
  options_.around_last_step(trained_->model(), [&] { outcome = train_step(step, report); });
  return outcome;
}

void RankTrainer::keep_loss(std::size_t m, const Tensor& loss) {
  if (device_losses_.is_defined()) {
    ops::copy(device_losses_.narrow(0, static_cast<std::int64_t>(m), 1), loss.view({1}));
  } else {
    losses_[m] = static_cast<float>(loss.item());
  }
}

std::vector<float> RankTrainer::losses() {
  return device_losses_.is_defined() ? device_losses_.to_vector<float>() : losses_;
}

void RankTrainer::timed_gradients(std::int64_t step, PhaseSeconds& seconds) {
  std::size_t kept = 0;
  plan_.loss_scale = scaler_.scale() * config_.recipe.plan().loss_scale;
  StopWatch watch;
  trained_->make_gradients(
      plan_,
      [&](int m) {
        if (m > 0) seconds.reduce += watch.lap();
        return sampler_.micro_batch(step, plan_.micro_batch(m, rank_, world_size_));
      },
      [&](const Tensor& loss) { keep_loss(kept++, loss); },
      {.before_forward = [&](int) { watch.lap(); },
       .before_backward = [&](int) { seconds.forward += watch.lap(); },
       .before_reduce = [&](int) { seconds.backward += watch.lap(); }});
  seconds.reduce += watch.lap();
}

bool RankTrainer::gradients_are_finite() {
  bool is_finite = true;
  for (const optim::Piece& piece : trained_->gradients().pieces()) {
    is_finite = is_finite && ops::all_finite(piece.grad);
  }
  return is_finite;
}

StepOutcome RankTrainer::train_step(std::int64_t step, StepReport& report) {
  timed_gradients(step, report.seconds);
  bool is_finite = true;
  report.lr = config_.schedule.at(step - skipped_);
  report.is_skipped = config_.scales_loss() && !no_rank_overflowed(step);
  StopWatch watch;
  if (!report.is_skipped) {
    if (config_.recipe.clip > 0) {
      report.norm = clip(step);
    } else {
      is_finite = gradients_are_finite();
    }
    trained_->step(report.lr);
  }
  trained_->gradients().zero_grad();
  report.seconds.step = watch.lap();
  return agree(losses(), is_finite);
}

bool RankTrainer::no_rank_overflowed(std::int64_t step) {
  const std::vector<float> all = gather<float>(group_.get(), {gradients_are_finite() ? 1.0F : 0.0F},
                                               {"overflow", Phase::loss});
  const bool overflow = std::find(all.begin(), all.end(), 0.0F) != all.end();
  const double scale = scaler_.scale();
  try {
    scaler_.update(overflow);
  } catch (const Error& error) {
    throw Error(fmt::format("step {}: {}; lower optimizer.lr, or use bfloat16{}", step + 1,
                            error.what(), where_to_go_on()));
  }
  if (!overflow) {
    skipped_in_a_row_ = 0;
    return true;
  }
  ++skipped_;
  note(fmt::format("step {}: a gradient overflowed at loss scale {}; the step was skipped",
                   step + 1, scale));
  // Here no later step can be any better.
  const bool is_every = skipped_ == config_.training.steps;
  FSDP_CHECK((++skipped_in_a_row_ < kMostInARow && !is_every) || config_.fp16.fixed == 0,
             "step {}: {} overflowed at fp16.loss_scale {}, which stays; lower it, or leave it out "
             "for one that adapts{}",
             step + 1,
             is_every ? "every step" : fmt::format("{} steps in a row", skipped_in_a_row_), scale,
             where_to_go_on());
  return false;
}

void RankTrainer::note_skipped(std::int64_t steps, std::int64_t skipped) const {
  if (skipped == 0) return;
  note(fmt::format("{} of {} steps were skipped, because a gradient overflowed{}", skipped, steps,
                   skipped == steps ? "; the parameters are what they were" : ""));
}

// The norm is equal on all ranks, and so is the error when it is not finite.
double RankTrainer::clip(std::int64_t step) {
  try {
    return trained_->clip(config_.recipe.clip);
  } catch (const Aborted&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("step {}: {}{}", step + 1, error.what(), where_to_go_on()));
  }
}

float RankTrainer::evaluate(std::int64_t steps_done, RunResult& result) {
  const float loss = evaluator_->mean_loss(trained_->model());
  result.evaluations.push_back({steps_done, loss});
  return loss;
}

StepOutcome RankTrainer::agree(std::vector<float> losses, bool is_finite) {
  const int stop = rank_ == process_rank() && options_.poll_stop ? options_.poll_stop() : 0;
  losses.push_back(is_finite ? 1.0F : 0.0F);
  losses.push_back(static_cast<float>(stop));
  const std::size_t stride = losses.size();
  const std::vector<float> gathered = gather(group_.get(), losses, {"loss", Phase::loss});
  StepOutcome outcome{.loss = mean_loss(gathered, stride)};
  for (std::size_t end = stride; end <= gathered.size(); end += stride) {
    outcome.is_finite = outcome.is_finite && gathered[end - 2] != 0;
    if (outcome.stop == 0) outcome.stop = static_cast<int>(gathered[end - 1]);
  }
  return outcome;
}

float RankTrainer::mean_loss(const std::vector<float>& gathered, std::size_t stride) const {
  std::vector<float> by_j(static_cast<std::size_t>(world_size_ * plan_.micro_steps));
  for (int rank = 0; rank < world_size_; ++rank) {
    for (int m = 0; m < plan_.micro_steps; ++m) {
      by_j[static_cast<std::size_t>(plan_.micro_batch(m, rank, world_size_))] =
          gathered[static_cast<std::size_t>(rank) * stride + static_cast<std::size_t>(m)];
    }
  }
  return tree_sum(by_j) * (1.0F / static_cast<float>(by_j.size()));
}

bool RankTrainer::goes_on(const StepOutcome& outcome) const {
  const bool is_finite = outcome.is_finite && std::isfinite(outcome.loss);
  // With a scaled loss, a step that overflowed was skipped.
  return outcome.stop == 0 && (is_finite || config_.scales_loss());
}

// Equal on all ranks, and what comes out of it (an abort of all) too.
void RankTrainer::check_step(std::int64_t step, const StepOutcome& outcome) const {
  if (config_.scales_loss()) return;  // such a step was skipped
  FSDP_CHECK(std::isfinite(outcome.loss),
             "step {}: the loss is {}: training has diverged; lower optimizer.lr, lengthen "
             "lr_scheduler.warmup_steps, or set training.max_norm{}",
             step, std::fabs(outcome.loss), where_to_go_on());  // a NaN may have a sign
  FSDP_CHECK(
      outcome.is_finite,
      "step {}: the loss is {}, but its gradient is not finite; lower optimizer.lr, lengthen "
      "lr_scheduler.warmup_steps, or set training.max_norm{}",
      step, outcome.loss, where_to_go_on());
}

// A finite gradient can still lead to infinity. Asked only before anything is written.
void RankTrainer::check_parameters(std::int64_t steps_done) {
  bool is_finite = true;
  for (const optim::Piece& piece : trained_->gradients().pieces()) {
    is_finite = is_finite && ops::all_finite(piece.param);
  }
  const std::vector<float> all =
      gather<float>(group_.get(), {is_finite ? 1.0F : 0.0F}, {"finite", Phase::loss});
  FSDP_CHECK(std::find(all.begin(), all.end(), 0.0F) == all.end(),
             "step {}: its gradient was finite, but a parameter is not any more; nothing was "
             "written; lower optimizer.lr{}",
             steps_done, where_to_go_on());
}

std::string RankTrainer::where_to_go_on() const {
  if (config_.checkpoint.folder.empty()) return "";
  return fmt::format("; the checkpoints in {} are all from before", config_.checkpoint.folder);
}

void RankTrainer::begin(RunResult& result) {
  const Start start =
      load_start(config_, *trained_, [this](const std::string& text) { note(text); });
  result.first_step = start.steps_done;
  sampler_.set_order(start.order);
  if (start.resumed && config_.scales_loss()) {
    skipped_ = io::integer_of(start.metadata, kSkipped, *start.resumed);
    restore(scaler_, start.metadata, *start.resumed);
  }
}

void RankTrainer::save(std::int64_t steps_done) {
  if (config_.checkpoint.folder.empty()) return;
  check_parameters(steps_done);
  const io::CheckpointFolder folder(config_.checkpoint.folder);
  save_checkpoint(*trained_, folder, steps_done, metadata_after(steps_done));
  note(fmt::format("saved {}", folder.final(steps_done).string()));
}

strategies::Metadata RankTrainer::metadata_after(std::int64_t steps_done) const {
  strategies::Metadata metadata = describe_run(config_, data_, steps_done, sampler_.order());
  if (config_.scales_loss()) {
    metadata[kSkipped] = std::to_string(skipped_);
    metadata.merge(scaler_.state());
  }
  return metadata;
}

std::string RankTrainer::fingerprint() {
  ParameterFingerprint fingerprint;
  trained_->for_each_full_parameter(
      [&](const std::string& path, const Tensor& full) { fingerprint.add(path, full); });
  return fingerprint.sha256();
}

std::vector<std::int32_t> RankTrainer::sample() {
  const config::SampleConfig& options = config_.sample;
  if (options.max_new_tokens == 0) return {};
  Generator generator(static_cast<std::uint64_t>(config_.training.seed));
  return nn::generate(trained_->model(), prompt_tokens(config_, data_),
                      static_cast<int>(options.max_new_tokens), config_.sequence_length(),
                      {options.temperature, static_cast<int>(options.top_k)}, generator);
}

}  // namespace fsdp::train
