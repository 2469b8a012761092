/// @file
/// @ingroup estimate
/// Whose engine an estimate is true of, and what that engine does by itself.
#pragma once

#include "estimate/estimator_config.h"

#include <string>
#include <vector>

namespace fsdp::estimate {

/// All names.
std::vector<std::string> frameworks();
/// Makes the estimate one of this framework; empty: of the file's own, which is deepspeed for a
/// file of DeepSpeed's, pytorch for one of torchtitan's, and unshard else.
/// @throws InputError for what is not known of it
void choose_framework(const std::string& framework, EstimatorConfig& config);
/// DeepSpeed's own defaults where its file is silent. What is "auto" there, Hugging Face's Trainer
/// derives from the model's width. A notice that a key has no effect is taken back if it has one.
/// @throws InputError for a value that is no number
void choose_zero_habits(EstimatorConfig& config);

}  // namespace fsdp::estimate
