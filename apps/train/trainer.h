/// @file
/// @ingroup train
/// A whole training run: all ranks, all steps.
#pragma once

#include "comm/process_group.h"
#include "config/config.h"
#include "device/memory_tracker.h"
#include "io/output_file.h"
#include "nn/transformer.h"
#include "train/data.h"

#include <bit>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {

/// How long the phases of a step took on this rank, in seconds.
struct PhaseSeconds {
  double forward = 0;   ///< of all micro-batches, with the loss
  double backward = 0;  ///< with the reductions that run meanwhile
  double reduce = 0;    ///< what is left of the reductions, and what makes means
  double step = 0;      ///< clipping and the optimizer
};

/// What is known after a step. The loss is the mean over the whole global batch.
struct StepReport {
  std::int64_t step = 0;  ///< counts from 1 here: "step 1 of 100"
  std::int64_t steps = 0;
  float loss = 0;
  std::optional<float> validation_loss = {};  ///< if an evaluation has followed
  bool is_skipped = false;                    ///< a scaled gradient overflowed: nothing was updated
  double lr = 0;
  double norm = 0;               ///< of the gradient before clipping; 0 when clipping is off
  double tokens_per_second = 0;  ///< of this step
  PhaseSeconds seconds = {};
  std::int64_t peak_bytes = 0;  ///< of this rank so far
  std::int64_t done = 0;        ///< steps of this run so far
  double elapsed = 0;           ///< seconds since their first began, with all that came between
};

/// The validation loss after a step.
struct Evaluation {
  std::int64_t step = 0;  ///< counts from 1
  float loss = 0;         ///< per token, in nats

  /// To the last bit: a NaN equals itself.
  bool operator==(const Evaluation& other) const {
    return step == other.step &&
           std::bit_cast<std::uint32_t>(loss) == std::bit_cast<std::uint32_t>(other.loss);
  }
};

/// What a run leaves behind.
struct RunResult {
  std::string strategy;
  int world_size = 1;
  std::int64_t first_step = 0;  ///< > 0 when resumed
  std::vector<float> losses;    ///< one per step
  std::vector<Evaluation> evaluations;
  std::string param_sha256;     ///< ParameterFingerprint of the parameters at the end
  std::int64_t peak_bytes = 0;  ///< of the rank that needed most, over the whole run
  Breakdown categories;         ///< that rank's bytes at its peak
  /// Received over all steps (evaluations and checkpoints aside), by the rank that received most.
  std::int64_t comm_bytes = 0;
  /// What received_bytes_per_step() says of these steps; the same for every rank.
  std::int64_t comm_formula_bytes = 0;
  double tokens_per_second = 0;
  std::vector<std::int32_t> sample;
  int stopped_by = 0;  ///< what poll_stop() returned: nothing was exported or sampled
};

/// A file that a program writes, and the option that asked for it.
struct PlannedFile {
  std::string option;  ///< "--summary"
  std::filesystem::path path;
  /// Checks that it can be written, and changes nothing.
  std::function<void(const std::filesystem::path&)> probe = io::probe_file;
};

struct RunOptions {
  const TokenData* validation = nullptr;  ///< for training.eval_every; must outlive the run
  std::function<void(const StepReport&)> on_step;   ///< called by rank 0 after each step
  std::function<void(const std::string&)> on_note;  ///< "resumed from …", "saved …"
  /// Called once in each step in every process: by its rank, or by rank 0 if ranks are threads. If
  /// one returns anything but 0, all ranks end after this step, with a checkpoint if there is a
  /// folder.
  std::function<int()> poll_stop;
  std::function<void()> on_trained;  ///< called likewise when poll_stop will not be called again
  std::string export_folder;  ///< where to put a Hugging Face folder at the end; empty = nowhere
  /// Called on every rank's thread, in its Context, in place of the last step: it must call `step`
  /// once, and may watch it. Nothing is in flight then, and all ranks have just met.
  std::function<void(nn::TransformerLM& model, const std::function<void()>& step)> around_last_step;
  /// Called on every rank's thread, in its Context, at the end of a run that was not stopped, with
  /// the group of all ranks; null if there is only this one. It may call collectives. If it throws
  /// on one rank, all ranks end.
  std::function<void(ProcessGroup* group)> on_finished;
  bool in_threads = false;  ///< ranks are threads of the first process, even under a launcher
  /// What the caller will write when the run is over: only tried before the first step.
  std::vector<PlannedFile> planned_files;
};

/// Trains as `config` says, on `data`. Ranks are threads of this process or, if a launcher has
/// started it, processes: then all of them call this, and each that is a rank gets the result. The
/// checkpoint folder and the export are locked meanwhile.
/// @throws InputError if a checkpoint or the data do not fit the configuration, or something that
///         is to be written cannot be: before the first step.
/// @throws Error on every rank, before anything is saved or exported, for the step after which a
///         loss, gradient or parameter is not finite.
RunResult run_training(const config::TrainConfig& config, const TokenData& data,
                       const RunOptions& options = {});

}  // namespace fsdp::train
