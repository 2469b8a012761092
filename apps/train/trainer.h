/// @file
/// @ingroup train
/// A whole training run: all ranks, all steps.
#pragma once

#include "device/memory_tracker.h"
#include "report/run_record.h"
#include "train/config.h"
#include "train/data.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::train {

/// What is known after a step. The loss is the mean over the whole global batch.
struct StepReport {
  std::int64_t step = 0;  ///< counts from 1 here: "step 1 of 100"
  std::int64_t steps = 0;
  float loss = 0;
  double lr = 0;
  double norm = 0;               ///< of the gradient before clipping; 0 when clipping is off
  double tokens_per_second = 0;  ///< of this step
  std::int64_t peak_bytes = 0;   ///< of this rank so far
};

/// What a run leaves behind.
struct RunResult {
  std::string strategy;
  int world_size = 1;
  std::int64_t first_step = 0;  ///< > 0 when resumed
  std::vector<float> losses;    ///< one a step
  /// SHA-256 over a line "path sha256-of-its-bytes" for each parameter, by path: equal if and only
  /// if every bit of every parameter is, and computed one unit at a time.
  std::string param_sha256;
  std::int64_t peak_bytes = 0;  ///< of the rank that needed most, over the whole run
  Breakdown categories;         ///< that rank's bytes at its peak
  std::int64_t comm_bytes = 0;  ///< sent by a rank over all steps (the rank that sent most)
  double tokens_per_second = 0;
  std::vector<std::int32_t> sample;
  report::RunRecord last_step;  ///< if RunOptions::records_last_step
  int stopped_by = 0;           ///< what poll_stop() returned: nothing was exported or sampled
};

struct RunOptions {
  std::function<void(const StepReport&)> on_step;   ///< called by rank 0 after each step
  std::function<void(const std::string&)> on_note;  ///< "resumed from …", "saved …"
  /// Called by rank 0 once in each step. If it returns anything but 0, all ranks end after this
  /// step, with a checkpoint if there is a folder.
  std::function<int()> poll_stop;
  std::function<void()> on_trained;  ///< called by rank 0 when poll_stop will not be called again
  std::string export_folder;  ///< where to put a Hugging Face folder at the end; empty = nowhere
  bool records_last_step = false;  ///< for a picture of it
  /// What the caller will write when the run is over: only tried before the first step. Empty =
  /// nothing.
  std::string summary, picture_folder;
};

/// Trains as `config` says, on `data`; ranks are threads of this process. The checkpoint folder and
/// the export are locked meanwhile.
/// @throws InputError if a checkpoint or the data do not fit the configuration, or something that
///         is to be written cannot be: before the first step.
/// @throws Error on every rank, before anything is saved or exported, for the step after which a
///         loss, gradient or parameter is not finite.
RunResult run_training(const TrainConfig& config, const TokenData& data,
                       const RunOptions& options = {});

}  // namespace fsdp::train
