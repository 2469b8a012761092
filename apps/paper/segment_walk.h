/// @file
/// @ingroup paper
/// SegmentWalk: what a segment of the model does to the bytes, in few changes.
#pragma once

#include "paper/ledger.h"
#include "paper/segment_memory.h"

#include <cstddef>
#include <string>
#include <vector>

namespace fsdp::paper {

/// A segment's points, in as few changes as tell all peaks.
struct SegmentWalk {
  /// Of an operation, or of several in a row: then it has the name of the last one.
  struct Section {
    std::string name;
    Stretch stretch;
    /// Points: it changes what was held at `first` into that at `last`.
    std::size_t first = 0;
    std::size_t last = 0;
  };
  using Sections = std::vector<Section>;
  Sections forward, again;
  Section again_body, again_end;  ///< the same, cut before its last change
  Sections backward;              ///< each up to where the hooks of a weight may run
};

/// @param counts_gradients as MemoryPoint::weight_grad says, the gradients of its weights count
/// @param by_operation false: nobody waits for a gradient, and backward is one stretch
/// @param forward_too the same of forward
SegmentWalk segment_walk(const SegmentMemory& segment, bool counts_gradients, bool by_operation,
                         bool forward_too);

}  // namespace fsdp::paper
