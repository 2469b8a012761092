/// @file
/// @ingroup race
/// The race: you plan a training step, and the engine of tasks 1 to 7 runs it. See README.md.
#pragma once

#include "base/clock.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::race {

/// A module that may be a unit: the embedding, a block, or the head.
struct Module {
  std::string name;                 ///< "model.layers.3"
  std::int64_t forward_ps = 0;      ///< how long it computes, in picoseconds
  std::int64_t backward_ps = 0;     ///< likewise; checkpointed, forward_ps more
  std::int64_t gather_ps = 0;       ///< of its parameters as a unit, on a channel that is free
  std::int64_t reduce_ps = 0;       ///< of its gradients, likewise
  std::int64_t full_bytes = 0;      ///< of its parameters when gathered, and of their gradients
  std::int64_t saved_bytes = 0;     ///< what the tape keeps of it from forward to backward
  std::int64_t saved_if_again = 0;  ///< the same, if it is checkpointed
  bool is_block = false;            ///< only blocks can be checkpointed
};

/// What becomes of one unit in a step. A module that is no unit belongs to the unit "root", which
/// is gathered first, freed last, and kept in between.
struct Unit {
  std::string module;  ///< a Module's name, or "root": of it only the two lists, and if it exists
  bool keep = false;   ///< all of it from its forward to its backward
  bool keep_part = false;   ///< a part of it, in place of all: see Plan::neighbors
  bool checkpoint = false;  ///< of a block: backward runs its forward again
  std::vector<std::string> before_forward{};   ///< units whose gathers start when this one is about
  std::vector<std::string> before_backward{};  ///< to compute, in this order
};
/// What is not planned still happens: a unit that nobody gathered is gathered when it computes.
struct Plan {
  std::vector<Unit> units;  ///< at least one, in any order
  /// s: a part is 1/s of a unit, and backward gathers the parts of s ranks that follow one another,
  /// from a multiple of s on. s divides W, and 1 < s < W; 0: no unit may keep a part.
  int neighbors = 0;
};

struct Estimate {
  std::int64_t step_ps = 0;     ///< what the judge's clock will say
  std::int64_t peak_bytes = 0;  ///< what the judge's tracker will say
};

struct Problem {
  std::vector<Module> modules;    ///< in forward order
  int ranks = 1;                  ///< W
  CostModel machine;              ///< flops, bandwidths, latency α, ranks per box
  std::int64_t memory_bytes = 0;  ///< of a rank; a plan whose peak is higher has no time
  /// Walks through a step on paper, in less than a millisecond. @throws Error if the plan is wrong
  std::function<Estimate(const Plan&)> estimate;
};

/// You write this, in policy.cpp.
Plan plan(const Problem& problem);

}  // namespace fsdp::race
