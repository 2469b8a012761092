/// @file
/// @ingroup train
/// unshard-train --eval: loads a model, evaluates it, and trains nothing.
#pragma once

#include "config/config.h"
#include "train/data.h"

#include <cstdint>
#include <functional>
#include <string>

namespace fsdp::train {

/// What an evaluation finds.
struct EvaluationResult {
  float loss = 0;                ///< per token, in nats
  std::int64_t windows = 0;      ///< of T tokens each
  std::int64_t steps_done = -1;  ///< by the checkpoint; -1 for a model that none was loaded of
  std::int64_t peak_bytes = 0;   ///< of the rank that needed most, when all was loaded
};

/// Evaluates the model of the latest checkpoint in checkpoint.folder or, if there is none, of
/// model.from, over `data`, on the ranks that `config` says (see run_training). Writes nothing, and
/// a training in that folder may go on meanwhile. `on_note` is called by rank 0.
/// @throws InputError if there is no model, or the checkpoint holds another one than `config` says.
EvaluationResult run_evaluation(const config::TrainConfig& config, const TokenData& data,
                                const std::function<void(const std::string&)>& on_note = {});

}  // namespace fsdp::train
