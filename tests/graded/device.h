/// @file
/// Where the code under test computes, and what a judge computes to compare it with.
#pragma once

#include "base/types.h"

#include <string>

namespace fsdp::graded {

/// "cpu" or "cuda", a card that all ranks share, or its stand-in. @throws Error for any other text
Device device_named(const std::string& name);

/// Where the rank of this thread computes.
Device device_of_rank();

/// Takes the scratch that kernels keep for this thread's rank, so that no measurement counts it.
void take_scratch();

}  // namespace fsdp::graded
