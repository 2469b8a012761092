/// @file
/// What a rank's trace says of an iteration of a toy.
#pragma once

#include "support/toy.h"

#include <string>
#include <vector>

namespace fsdp::testing {

using Lines = std::vector<std::string>;

/// All events of iteration number `iteration` on rank 0, from the forward to the freed gradients.
/// All ranks have the same, or this throws.
Lines iteration_events(const FullyShardOptions& options, int iteration = 1,
                       const ToyConfig& config = {}, int world_size = 2);

/// The lines that begin with one of `beginnings`, in order.
Lines only(const Lines& lines, const std::vector<std::string>& beginnings);

/// The lists one after the other.
Lines joined(const std::vector<Lines>& lists);

}  // namespace fsdp::testing
