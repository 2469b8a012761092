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
  // SOLUTION 6.1: todo(guess, unit)
  const auto from = guess.order.begin() + static_cast<std::ptrdiff_t>(guess.cursor);
  const auto found = std::find(from, guess.order.end(), &unit);
  if (found == guess.order.end()) return false;
  guess.cursor = static_cast<std::size_t>(found - guess.order.begin()) + 1;
  return found == from;
  // END SOLUTION
}

void Prefetcher::reshard_stale(const Guess& guess) {
  // SOLUTION 6.1: todo(guess, ahead_)
  const auto from = guess.order.begin() + static_cast<std::ptrdiff_t>(guess.cursor);
  const auto count = std::min<std::ptrdiff_t>(options_.depth, guess.order.end() - from);
  std::erase_if(ahead_, [&](ShardedUnit* unit) {
    if (std::find(from, from + count, unit) != from + count) return false;
    unit->reshard();
    return true;
  });
  // END SOLUTION
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
  // SOLUTION 6.2: todo(guess, phase, ahead_)
  const std::size_t end =
      std::min(guess.order.size(), guess.cursor + static_cast<std::size_t>(options_.depth));
  for (std::size_t i = guess.cursor; i < end; ++i) {
    ShardedUnit& next = *guess.order[i];
    if (next.state() != ShardedUnit::State::sharded) continue;
    if (in_flight() >= options_.in_flight_limit) return;
    next.start_unshard(phase);
    ahead_.push_back(&next);
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 6.3
// Begin and end a forward.
//
// Keep:  after forward_ends no unit is left that was gathered ahead but not used.
void Prefetcher::forward_begins() {
  // SOLUTION 6.3: todo(recording_, recorded_, forward_)
  for (ShardedUnit* unit : ahead_) unit->reshard();
  ahead_.clear();
  recording_.clear();
  forward_ = {recorded_, 0};
  backward_begun_ = false;
  // END SOLUTION
}

void Prefetcher::forward_ends() {
  // SOLUTION 6.3: todo(ahead_, recorded_)
  for (ShardedUnit* unit : ahead_) unit->reshard();
  ahead_.clear();
  recorded_ = recording_;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 6.4
// A unit is about to compute in forward.
void Prefetcher::before_forward(ShardedUnit& unit) {
  // SOLUTION 6.4: todo(unit, recording_, forward_)
  recording_.push_back(&unit);
  std::erase(ahead_, &unit);
  if (!advance(forward_, unit)) reshard_stale(forward_);
  start_ahead(forward_, Phase::forward);
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 6.5
// A unit is about to compute in backward.
//
// Hint:  the first call after a forward builds the guess from `recorded_`.
void Prefetcher::before_backward(ShardedUnit& unit) {
  // SOLUTION 6.5: todo(unit, backward_)
  if (!backward_begun_) {
    backward_begun_ = true;
    backward_ = {};
    for (auto each = recorded_.rbegin(); each != recorded_.rend(); ++each) {
      if (!(*each)->options().keep_until_backward) backward_.order.push_back(*each);
    }
  }
  std::erase(ahead_, &unit);
  if (!unit.options().keep_until_backward && !advance(backward_, unit)) reshard_stale(backward_);
  start_ahead(backward_, Phase::backward);
  // END SOLUTION
}

}  // namespace fsdp
