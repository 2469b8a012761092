/// @file
/// @ingroup train
/// The training loop of one rank.
#pragma once

#include "comm/process_group.h"
#include "strategies/model_files.h"
#include "strategies/trained_model.h"
#include "train/evaluator.h"
#include "train/ranks.h"
#include "train/trainer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {

/// What all ranks know after a step, because they told each other.
struct StepOutcome {
  float loss = 0;         ///< mean over the global batch
  bool is_finite = true;  ///< the gradient, on every rank
  int stop = 0;           ///< what the first poll_stop returned that was not 0
};

/// One rank from its first step to its last. Runs on the rank's thread, in its Context.
class RankTrainer {
 public:
  RankTrainer(const config::TrainConfig& config, const TokenData& data, const RunOptions& options,
              const Rank& rank);
  /// Of this rank: `categories` are its bytes at its peak. The strategy, the number of ranks and
  /// `peak_bytes` are not filled in. Losses, fingerprint and sample are equal on all ranks.
  RunResult run();

 private:
  void begin(RunResult& result);
  StepOutcome train_step(std::int64_t step, StepReport& report);
  /// The gradients of a step. The losses of this rank's micro-batches are in losses_ then.
  void timed_gradients(std::int64_t step, PhaseSeconds& seconds);
  void keep_loss(std::size_t m, const Tensor& loss);
  /// Those of the micro-batches of a step, in their order.
  std::vector<float> losses();
  bool gradients_are_finite();
  StepOutcome last_step(std::int64_t step, StepReport& report, RunResult& result);
  double clip(std::int64_t step);
  /// The validation loss after so many steps.
  float evaluate(std::int64_t steps_done, RunResult& result);
  /// One gather tells every rank the losses of all, whether any gradient is not finite, and whether
  /// rank 0 was asked to stop.
  StepOutcome agree(std::vector<float> losses, bool is_finite);
  /// Micro-batch losses, `stride` floats per rank, in the order of j, summed as gradients are.
  float mean_loss(const std::vector<float>& gathered, std::size_t stride) const;
  /// The scaled gradient is finite on every rank. If not, the step is to be skipped. Collective.
  bool no_rank_overflowed(std::int64_t step);
  void note_skipped(std::int64_t steps, std::int64_t skipped) const;
  /// After this step comes another one, if one is left.
  bool goes_on(const StepOutcome& outcome) const;
  void check_step(std::int64_t step, const StepOutcome& outcome) const;
  void check_parameters(std::int64_t steps_done);
  /// The end of an error's sentence: that what was saved is good.
  std::string where_to_go_on() const;
  void save(std::int64_t steps_done);
  /// What a checkpoint says beside its tensors.
  strategies::Metadata metadata_after(std::int64_t steps_done) const;
  void finish(RunResult& result);
  void export_model();
  std::string fingerprint();
  std::vector<std::int32_t> sample();
  void note(const std::string& text) const;

  const config::TrainConfig& config_;
  const TokenData& data_;
  const RunOptions& options_;
  std::shared_ptr<ProcessGroup> group_;  // null: alone
  int rank_;
  int world_size_;
  optim::StepPlan plan_;
  Sampler sampler_;
  std::optional<Evaluator> evaluator_;
  std::unique_ptr<strategies::TrainedModel> trained_;
  optim::LossScaler scaler_;
  std::int64_t skipped_ = 0;  // steps without an update, because a scaled gradient overflowed
  int skipped_in_a_row_ = 0;
  std::vector<float> losses_;  // of the micro-batches of a step
  Tensor device_losses_;       // the same on a card, where the host reads them when the step ends
};

}  // namespace fsdp::train
