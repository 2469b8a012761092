/// @file
/// What of a ReplicaReduction is under way.
#pragma once

#include "task8_beyond/mesh.h"

#include <cstddef>
#include <string>

namespace fsdp {

/// Befriended by ReplicaReduction.
struct StepProbe {
  static std::size_t under_way(const ReplicaReduction& reduction) {
    return reduction.under_way_.size();
  }
  /// Whose sums the last shard under way belongs to.
  static const TreeAccumulator* last_sums(const ReplicaReduction& reduction) {
    return reduction.under_way_.empty() ? nullptr : reduction.under_way_.back().sums;
  }
  static const std::string& unit(const ReplicaReduction& reduction) { return reduction.unit_; }
  static void wait(ReplicaReduction& reduction) {
    for (auto& each : reduction.under_way_) each.work.wait();
  }
  /// Ends what is under way without step 8.3.
  static void drop(ReplicaReduction& reduction) {
    wait(reduction);
    reduction.under_way_.clear();
    reduction.unit_.clear();
  }
};

}  // namespace fsdp
