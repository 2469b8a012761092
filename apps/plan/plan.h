/// @file
/// @ingroup plan
/// A plan: many configurations of one training, and the best of them.
#pragma once

#include "plan/choices.h"
#include "plan/evaluator.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::plan {

/// What is planned.
struct PlanRequest {
  std::string model_name = {};
  /// Length, clip, optimizer, buckets and threads are taken from it.
  paper::MemoryOptions base = {};
  std::int64_t memory = 0;               ///< bytes of a rank's device
  std::vector<std::int64_t> ranks = {};  ///< W to choose from
  std::int64_t global_batch = 0;         ///< sequences of a step
  bool has_bus = false;                  ///< offload is a choice
  int ranks_per_box = 0;                 ///< within(s) with this s is a choice
};

/// Another value of a choice, and the fastest that fits with it. None: nothing fits.
struct Alternative {
  Choice choice;
  std::string value;
  std::size_t index = kNone;  ///< into Plan::outcomes
  static constexpr std::size_t kNone = ~std::size_t{0};
};

struct Plan {
  PlanRequest request;
  std::vector<Outcome> outcomes;  ///< what does not fit has no time, and `beside` only if `least`
  std::size_t fitting = 0;
  /// Fastest first, each with less memory than the one before. Only what fits.
  std::vector<std::size_t> front;
  std::size_t next_best = Alternative::kNone;  ///< the second fastest that fits
  std::vector<Alternative> alternatives;       ///< of the fastest
  bool is_feasible() const { return !front.empty(); }
  const Outcome& best() const { return outcomes[front.front()]; }
  std::size_t least = Alternative::kNone;  ///< where nothing fits: what takes least memory
  const Outcome& smallest() const { return outcomes[least]; }
};

/// Every configuration: strategy × W × S × resharding × prefetch × checkpointing × precision ×
/// offload × micro-batch. A rank's share of the global batch is M micro-batches of B sequences.
std::vector<paper::MemoryOptions> candidates(const PlanRequest& request);

/// @throws InputError if no number of ranks divides the global batch, or if planning would take
/// minutes.
Plan make_plan(Evaluator& evaluator, PlanRequest request);

/// Indices of what nothing else beats in both time and memory, among what fits; fastest first.
std::vector<std::size_t> pareto_front(const std::vector<Outcome>& outcomes, std::int64_t memory);

/// The best with half as many micro-batches, twice as large; none if their number is odd.
std::optional<Outcome> larger_micro_batch(const Plan& plan, Evaluator& evaluator);

std::string plan_text(const Plan& plan, Evaluator& evaluator);
std::string plan_json(const Plan& plan, Evaluator& evaluator);

}  // namespace fsdp::plan
