// Task 6: prefetching.     Handout: tasks/task6_prefetching/README.md
// Edit only this file. Types and data members: prefetching.h
// Check with:  make test-task6

#include "task6_prefetching/prefetching.h"

#include "base/check.h"
#include "base/todo.h"

#include <algorithm>
#include <utility>

namespace fsdp {

Prefetcher::Prefetcher(std::vector<ShardedUnit*> units, Options options)
    : units_(std::move(units)), options_(options) {
  FSDP_CHECK(options_.depth >= 1,
             "the prefetch depth is {}: use 1 or more, or no Prefetcher at all", options_.depth);
  FSDP_CHECK(options_.in_flight_limit >= 0,
             "the in-flight limit is {}: use 1 or more, or 0 for the depth",
             options_.in_flight_limit);
  if (options_.in_flight_limit == 0) options_.in_flight_limit = options_.depth;
}

// ------------------------------------------------------------------- TODO 6.1
// Follow the guess, right or wrong.
//
// Keep:  a unit that is not in the rest of the guess does not move the cursor. A unit that comes
//        later in it moves the cursor past it. Reshard units gathered for nothing at once, so that
//        the depth bounds memory.
bool Prefetcher::advance(Guess& guess, const ShardedUnit& unit) {
  todo("6.1", guess, unit);
}

void Prefetcher::reshard_stale(const Guess& guess) {
  todo("6.1", guess, ahead_);
}

int Prefetcher::in_flight() const {
  return static_cast<int>(std::count_if(units_.begin(), units_.end(), [](const ShardedUnit* unit) {
    return unit->state() == ShardedUnit::State::unsharding;
  }));
}

// ------------------------------------------------------------------- TODO 6.2
// Start the next units, as far as depth and limit allow.
//
// Keep:  units that are unsharded already count toward the depth: at most `depth` are held ahead.
void Prefetcher::start_ahead(const Guess& guess, Phase phase) {
  todo("6.2", guess, phase, ahead_);
}

// ------------------------------------------------------------------- TODO 6.3
// Begin and end a forward.
//
// Keep:  after forward_ends no unit is left that was gathered ahead but not used.
void Prefetcher::forward_begins() {
  todo("6.3", recording_, recorded_, forward_);
}

void Prefetcher::forward_ends() {
  todo("6.3", ahead_, recorded_);
}

// ------------------------------------------------------------------- TODO 6.4
// A unit is about to compute in forward.
void Prefetcher::before_forward(ShardedUnit& unit) {
  todo("6.4", unit, recording_, forward_);
}

// ------------------------------------------------------------------- TODO 6.5
// A unit is about to compute in backward.
//
// Hint:  the first call after a forward builds the guess from `recorded_`.
void Prefetcher::before_backward(ShardedUnit& unit) {
  todo("6.5", unit, backward_);
}

}  // namespace fsdp
