/// @file
/// @ingroup paper
/// How long the kernels of a model compute on a modeled machine.
#pragma once

#include "base/clock.h"
#include "nn/transformer_config.h"
#include "paper/memory_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::paper {

/// When the backward of an operation ends, and with it the gradient of its weight is complete, in
/// picoseconds since the backward of its segment began.
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
  /// Picoseconds after so many kernels, from 0 on.
  std::vector<std::int64_t> forward_at = {}, again_at = {}, backward_at = {};
};

/// All blocks of a model are alike.
struct KernelTimes {
  SegmentTimes embedding;
  SegmentTimes block;
  SegmentTimes head;
  SegmentTimes loss;
};

/// Adds up the kernels that a PaperTape of a model of one block calls, all of it trained. Each
/// takes as long as on the clock of the fake device.
KernelTimes kernel_times(const nn::TransformerConfig& config, const MemoryOptions& options,
                         const CostModel& machine);

}  // namespace fsdp::paper
