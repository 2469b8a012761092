/// @file
/// Training steps measured in a process of their own, which prints what it found for its parent.
#pragma once

#include <string>

namespace fsdp::bench {

/// Seconds of the phases of a step.
struct Phases {
  double gradients = 0;  ///< forward, backward, and what is exchanged meanwhile
  double finish = 0;     ///< the rest of the exchange
  double update = 0;     ///< the optimizer's
  double total() const { return gradients + finish + update; }
};

/// What a training step takes in one process.
struct StepCost {
  double seconds = 0;    ///< median of the steps
  Phases phases;         ///< of that step
  double faults = 0;     ///< minor page faults per step, of the whole process
  double rss = 0;        ///< bytes, peak of the process
  double accounted = 0;  ///< bytes, peak of the trackers, over all ranks of the process
};

/// The child's part: prints one line.
void print(const StepCost& cost);

/// Runs a shell's command line, which prints one StepCost. @throws Error if it does not.
StepCost measure_in_child(const std::string& command);

}  // namespace fsdp::bench
