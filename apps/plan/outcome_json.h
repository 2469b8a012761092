/// @file
/// @ingroup plan
/// What --plan and --sweep print of a configuration, for programs. Bytes are whole numbers, times
/// are picoseconds.
#pragma once

#include "plan/evaluator.h"

#include <nlohmann/json.hpp>

namespace fsdp::plan {

/// What was chosen, by the names of choices.h, and the number of micro-steps.
nlohmann::ordered_json configuration_of(const paper::MemoryOptions& options);

/// Adds `time_ps` by what the step is spent on, `latency_ps` and `transfer_ps` to an object.
void add_time(nlohmann::ordered_json& object, const paper::StepTime& time);

}  // namespace fsdp::plan
