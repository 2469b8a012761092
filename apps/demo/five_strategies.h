/// @file
/// The strategies of unshard-train beside each other, in a few steps each.
#pragma once

#include "train/config.h"
#include "train/data.h"
#include "train/summary.h"

#include <functional>
#include <string>
#include <vector>

namespace fsdp::train {

/// Makes a configuration of these words and the demo's own.
using Configure = std::function<TrainConfig(const std::vector<std::string>& words)>;

/// A short training with each of single, ddp, zero1, zero2 and fsdp; all but the first over four
/// ranks, which are threads.
std::vector<BoundedRun> five_strategies(const Configure& configure, const TokenData& data);

/// One row per run: memory, what a rank received, the last loss, and the fingerprint of all
/// parameters.
std::string five_strategies_table(const std::vector<BoundedRun>& runs);

}  // namespace fsdp::train
