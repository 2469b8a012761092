/// @file
/// @ingroup paper
/// How long the kernels of a model compute on a modeled machine.
#pragma once

#include "base/clock.h"
#include "nn/transformer.h"
#include "paper/memory_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::paper {

/// When the gradient of a weight is complete, in picoseconds since the backward of its segment
/// began. A weight is named after its operation, as in the activation table: "down_proj".
struct Completion {
  std::string operation;
  std::int64_t at = 0;
};

/// Picoseconds that a segment (embedding, block, head or loss) computes for one micro-batch.
struct SegmentTimes {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::vector<Completion> completions;  ///< in the order of time
  std::int64_t again = 0;               ///< the second forward, if it is checkpointed
};

/// All blocks of a model are alike.
struct KernelTimes {
  SegmentTimes embedding;
  SegmentTimes block;
  SegmentTimes head;
  SegmentTimes loss;
};

/// Runs a model of one block forward and backward on the fake device, where each kernel advances
/// the clock by its declared cost, and reads the clock between the segments. No data is allocated.
KernelTimes kernel_times(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine);

}  // namespace fsdp::paper
