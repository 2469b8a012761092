/// @file
/// @ingroup comm
/// Work for the devices of other ranks, on whatever thread finds the time.
#pragma once

#include "comm/process_group.h"

#include <vector>

namespace fsdp::cuda {

/// The device of the rank that made `call`.
RankDevice& device_of(const Collective& call);

/// Waits until the communication streams of all ranks are empty, after a failure. Throws nothing.
void drain(const std::vector<Collective>& calls) noexcept;

}  // namespace fsdp::cuda
