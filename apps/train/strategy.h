/// @file
/// @ingroup train
/// From a configuration to the model that is trained.
#pragma once

#include "comm/process_group.h"
#include "config/config.h"
#include "strategies/trained_model.h"

#include <memory>

namespace fsdp::train {

using strategies::TrainedModel;

/// `group` is null for strategy "single".
std::unique_ptr<TrainedModel> make_trained_model(const config::TrainConfig& config,
                                                 std::shared_ptr<ProcessGroup> group);

}  // namespace fsdp::train
