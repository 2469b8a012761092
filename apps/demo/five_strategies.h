/// @file
/// The strategies of unshard-train beside each other, in a few steps each.
#pragma once

#include "config/config.h"
#include "train/data.h"
#include "train/summary.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::train {

/// Makes a configuration of these words and the demo's own.
using Configure = std::function<config::TrainConfig(const std::vector<std::string>& words)>;

/// The most bytes that a rank of a training may need.
using Bound = std::function<std::int64_t(const config::TrainConfig& config)>;

/// A training of at most eight steps with each of single, ddp, zero1, zero2 and fsdp; all but the
/// first over four ranks, which are threads.
std::vector<BoundedRun> five_strategies(const Configure& configure, const Bound& bound,
                                        const TokenData& data);

}  // namespace fsdp::train
