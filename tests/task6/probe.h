/// @file
/// Single steps of the prefetcher, and the members they work on.
#pragma once

#include "task6_prefetching/prefetching.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace fsdp {

struct StepProbe {
  using Units = std::vector<ShardedUnit*>;
  using Guess = Prefetcher::Guess;

  static Guess guess(Units order, std::size_t cursor) { return {std::move(order), cursor}; }
  static bool advance(Guess& guess, const ShardedUnit& unit) {
    return Prefetcher::advance(guess, unit);
  }
  static void reshard_stale(Prefetcher& prefetcher, const Guess& guess) {
    prefetcher.reshard_stale(guess);
  }
  static void start_ahead(Prefetcher& prefetcher, const Guess& guess, Phase phase) {
    prefetcher.start_ahead(guess, phase);
  }
  static Units& ahead(Prefetcher& prefetcher) { return prefetcher.ahead_; }
  static Units& recording(Prefetcher& prefetcher) { return prefetcher.recording_; }
  static Units& recorded(Prefetcher& prefetcher) { return prefetcher.recorded_; }
  static Guess& forward(Prefetcher& prefetcher) { return prefetcher.forward_; }
  static bool& backward_begun(Prefetcher& prefetcher) { return prefetcher.backward_begun_; }
};

}  // namespace fsdp
