/// @file
/// @ingroup demo
/// The demo's tables.
#pragma once

#include "train/summary.h"

#include <string>
#include <vector>

namespace fsdp::train {

/// One row per run, by name: its losses, memory, what a rank received, and how fast it was.
std::string trainings_table(const std::vector<std::string>& names,
                            const std::vector<BoundedRun>& runs);

/// One row per run: memory, what a rank received, the last loss, and the fingerprint of all
/// parameters.
std::string five_strategies_table(const std::vector<BoundedRun>& runs);

}  // namespace fsdp::train
