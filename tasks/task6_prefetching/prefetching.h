/// @file
/// @ingroup task6
/// Task 6: gather the next unit while this one computes.
#pragma once

#include "task3_forward/forward.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace fsdp {

/// Starts all-gathers before their use, in the order in which units were used last time.
///
///     forward, depth 1         compute   |    unit 0    |    unit 1    |    unit 2    |
///                              gather  0 | 1 →→→→       | 2 →→→→       |
///
/// Forward: the order recorded during the previous forward (none in the first). Backward: the
/// reverse of the forward just before it. The order is a **guess**: when control flow changes,
/// units gathered for nothing are resharded, and training stays correct, with less overlap.
///
/// All decisions depend only on the order of this rank's own calls. So ranks that run the same
/// program issue the same collectives.
class Prefetcher : public UnshardScheduler {
 public:
  struct Options {
    int depth = 1;            ///< units ahead, at least 1
    int in_flight_limit = 0;  ///< gathers started but not yet waited for; 0 = depth
  };

  /// `units`: all of the model. They must outlive this object. @throws Error for a depth below 1.
  Prefetcher(std::vector<ShardedUnit*> units, Options options);

  /// 6.3  A forward begins: starts a new recording; the previous record becomes the guess.
  void forward_begins();
  /// 6.3  It ended: reshards units that were gathered ahead but not used.
  void forward_ends();

  /// 6.4  Records the unit and starts the next ones of the guess.
  void before_forward(ShardedUnit& unit) override;
  /// 6.5  Starts the next units in the reverse of the forward order. Units kept until backward
  /// (Options::keep_until_backward) are unsharded already, so that order leaves them out.
  void before_backward(ShardedUnit& unit) override;

  /// The order recorded in the last complete forward.
  const std::vector<ShardedUnit*>& recorded_order() const { return recorded_; }
  const Options& options() const { return options_; }

 private:
  friend struct StepProbe;  // runs one step by itself (tests)
  /// Follows an order along with the calls. `cursor` is the place after the unit used last.
  struct Guess {
    std::vector<ShardedUnit*> order;
    std::size_t cursor = 0;
  };
  /// 6.1  Finds `unit` at or after the cursor and steps past it. False if another was expected.
  static bool advance(Guess& guess, const ShardedUnit& unit);
  /// 6.2  Starts up to `depth` units from the cursor on, while fewer than the limit are in flight.
  void start_ahead(const Guess& guess, Phase phase);
  /// 6.1  Reshards units gathered ahead that are not among the next `depth` of the guess.
  void reshard_stale(const Guess& guess);
  int in_flight() const;

  std::vector<ShardedUnit*> units_;
  Options options_;
  std::vector<ShardedUnit*> recording_;  // this forward, so far
  std::vector<ShardedUnit*> recorded_;   // the last complete forward
  Guess forward_;
  Guess backward_;
  bool backward_begun_ = false;
  std::vector<ShardedUnit*> ahead_;  // started here, not used yet
  std::shared_ptr<void> extra;       // spare, for the student
};

}  // namespace fsdp
