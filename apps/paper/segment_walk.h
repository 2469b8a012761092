/// @file
/// @ingroup paper
/// SegmentWalk: what a segment of the model does to the bytes, in few changes.
#pragma once

#include "paper/activation_table.h"
#include "paper/ledger.h"

#include <string>
#include <vector>

namespace fsdp::paper {

/// A segment's points, in as few changes as tell all peaks.
struct SegmentWalk {
  struct Operation {
    std::string name;
    Stretch stretch;
  };
  Stretch forward;
  Stretch again;
  Stretch again_body, again_end;    ///< the same, cut before its last change
  std::vector<Operation> backward;  ///< each up to where the hooks of a weight may run
};

/// @param counts_gradients as MemoryPoint::weight_grad says, the gradients of its weights count
/// @param by_operation false: nobody waits for a gradient, and backward is one stretch
SegmentWalk segment_walk(const SegmentMemory& segment, bool counts_gradients, bool by_operation);

}  // namespace fsdp::paper
