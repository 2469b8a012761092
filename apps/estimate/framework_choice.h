/// @file
/// @ingroup estimate
/// Whose engine an estimate is true of.
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

}  // namespace fsdp::estimate
