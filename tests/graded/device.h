/// @file
/// Where the code under test computes, and what a judge computes to compare it with.
#pragma once

#include "comm/world.h"
#include "device/context.h"
#include "graded/case.h"

#include <cstdint>
#include <string>

namespace fsdp::graded {

/// "cpu" or "cuda", a card that all ranks share, or its stand-in. @throws Error for any other text
Device device_named(const std::string& name);

/// For judges: where a case with these options runs. That is the device of FSDP_DEVICE, or the cpu
/// if it is not set; and the cpu for float64, which devices do not compute.
Device device_of_case(const Json& options);

/// A Context on that device whose bytes are counted as on the cpu: they are judged.
Context::Options rank_options(Device device, std::uint64_t seed);

/// Ranks on that device, which count their bytes the same way.
RankOptions ranks_on(Device device, int world_size, std::uint64_t seed);

/// Where the rank of this thread computes.
Device device_of_rank();

/// Takes the scratch that kernels keep for this thread's rank, so that no measurement counts it.
void take_scratch();

}  // namespace fsdp::graded
