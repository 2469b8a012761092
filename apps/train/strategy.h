/// @file
/// @ingroup train
/// From a configuration to the model that is trained.
#pragma once

#include "comm/process_group.h"
#include "optim/gradient_engine.h"
#include "optim/optimizer.h"
#include "parallel/zero.h"
#include "strategies/trained_model.h"
#include "train/config.h"

#include <cstddef>
#include <memory>
#include <string>

namespace fsdp::train {

using strategies::TrainedModel;

/// How a rank takes its share of a step's micro-batches.
optim::StepPlan plan_of(const TrainConfig& config);
std::shared_ptr<optim::Optimizer> make_optimizer(const OptimizerConfig& config);
/// Whether weight decay applies to the parameter of this path.
bool decays(const OptimizerConfig& config, const std::string& path);
/// Of DdpGradients, and of the all-reduces of ZeRO-1.
std::size_t bucket_bytes(const TrainConfig& config);
parallel::ZeroOptions zero_options(const TrainConfig& config);

/// `group` is null for strategy "single".
std::unique_ptr<TrainedModel> make_trained_model(const TrainConfig& config,
                                                 std::shared_ptr<ProcessGroup> group);

}  // namespace fsdp::train
