// The race, greedily: begin with plain FSDP, and take what helps as long as it fits.
//
// Twice: with no block checkpointed, and with all. Units are kept from the last one on: it has the
// shortest way from its forward to its backward, so its bytes are held for the shortest time.

#include "race/policy.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::race {
namespace {

/// What is decided of each unit, by its place in forward order.
struct Decisions {
  std::vector<bool> keep, again;
  std::size_t depth = 1;  // how many units ahead gathers start
};

Plan plan_of(const Problem& problem, const Decisions& decided) {
  const std::size_t n = problem.modules.size();
  Plan made;
  for (std::size_t i = 0; i < n; ++i) {
    made.units.push_back({.module = problem.modules[i].name});
    made.units[i].keep = decided.keep[i];
    made.units[i].checkpoint = decided.again[i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t ahead = 1; ahead <= decided.depth; ++ahead) {
      if (i + ahead < n) made.units[i].before_forward.push_back(problem.modules[i + ahead].name);
      if (ahead <= i) made.units[i].before_backward.push_back(problem.modules[i - ahead].name);
    }
  }
  return made;
}

/// @param reached the estimate of what is returned
Decisions improved(const Problem& problem, Decisions best, Estimate& reached) {
  const std::size_t n = problem.modules.size();
  reached = problem.estimate(plan_of(problem, best));
  const auto try_it = [&](const Decisions& other) {
    const Estimate estimate = problem.estimate(plan_of(problem, other));
    if (estimate.peak_bytes > problem.memory_bytes || estimate.step_ps >= reached.step_ps) return;
    best = other;
    reached = estimate;
  };
  for (std::size_t depth = 2; depth <= 4; ++depth) {
    Decisions other = best;
    other.depth = depth;
    try_it(other);
  }
  for (std::size_t i = n - 1; i-- > 0;) {
    Decisions other = best;
    other.keep[i] = true;
    try_it(other);
  }
  return best;
}

}  // namespace

Plan plan(const Problem& problem) {
  const std::size_t n = problem.modules.size();
  Decisions plain{std::vector<bool>(n, false), std::vector<bool>(n, false)};
  plain.keep.back() = true;
  Decisions again = plain;
  for (std::size_t i = 0; i < n; ++i) again.again[i] = problem.modules[i].is_block;
  Estimate of_plain, of_again;
  const Decisions best = improved(problem, plain, of_plain);
  const Decisions best_again = improved(problem, again, of_again);
  const auto fits = [&](const Estimate& each) { return each.peak_bytes <= problem.memory_bytes; };
  const bool is_plain = fits(of_plain) && (of_plain.step_ps <= of_again.step_ps || !fits(of_again));
  return plan_of(problem, is_plain ? best : best_again);
}

}  // namespace fsdp::race
