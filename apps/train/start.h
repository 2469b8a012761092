/// @file
/// @ingroup train
/// What a training goes on from, or begins with.
#pragma once

#include "config/config.h"
#include "strategies/model_files.h"
#include "strategies/trained_model.h"
#include "train/data.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace fsdp::train {

using strategies::TrainedModel;

/// Where a training is when its first step begins.
struct Start {
  std::int64_t steps_done = 0;
  SequenceOrder order = SequenceOrder::by_place;
  /// The checkpoint of its own that it goes on from; none: it is a new training.
  std::optional<std::filesystem::path> resumed = {};
  strategies::Metadata metadata = {};  ///< of that one
};

/// Fills the model, and the optimizer's state: from the latest checkpoint in checkpoint.folder or,
/// if there is none, from checkpoint.from or model.from. Otherwise they stay as they are.
///
/// With checkpoint.from, the state goes on, with the number of its updates; everything else (step,
/// schedule, order of the data, loss scale) begins anew. Collective.
/// @param note  called on every rank with what was loaded
/// @throws InputError naming the folder, and what does not fit
Start load_start(const config::TrainConfig& config, TrainedModel& trained,
                 const std::function<void(const std::string&)>& note);

}  // namespace fsdp::train
