/// @file
/// Judge: what the handout says, on numbers. No unit, no tensor; the order of events only.
#pragma once

#include "graded/case.h"

#include <cstddef>
#include <string>
#include <vector>

namespace fsdp::graded {

using Numbers = std::vector<int>;

enum class UnitState { sharded, unsharding, unsharded };

/// Mistakes whose event lists are known.
enum class Slip {
  none,
  starts_nothing,
  unlimited,
  one_ahead,
  one_more,      ///< one unit more than the depth
  waits,         ///< finish_unshard instead of start_unshard
  from_itself,   ///< starts before it walks
  next_but_one,  ///< starts past the next unit
  never_gives_up,
  same_order,    ///< backward in the order of forward
  order_before,  ///< backward from the record before this one
  kept_in_order,
  kept_silent,
  frozen_left_out,
  guess_once,           ///< backward's guess is made in the first iteration
  first_record,         ///< backward always from the first record
  all_units_backward,   ///< backward from all units, not from the record
  no_repeats_backward,  ///< backward from the record without its repeats
  begins_at_first,      ///< backward's first report is taken for the first unit of the guess
  one_more_in_flight,
  one_less_in_flight,
  one_kept_only,     ///< of the kept units, backward leaves out only the last one
  limit_of_its_own,  ///< only gathers of units ahead count toward the limit
  limit_of_ahead,    ///< units ahead count toward the limit, in flight or not
  limit_for_depth,   ///< the limit takes the place of the depth
  stops_at_unsharded,
  stale_last,         ///< starts before it gives up what is stale
  oldest_stale_only,  ///< of several stale units, gives up at most the one that was started first
  nothing_if_stale,   ///< a wrong guess starts nothing
  guess_every_time,   ///< backward's guess is made anew at every call
  first_is_guessed,   ///< the first forward, from the order of the units
  needs_tape,         ///< nothing is gathered ahead without a tape
};

/// The prefetching of the handout.
class Handout {
 public:
  struct Options {
    int units = 5;
    int depth = 1;
    int limit = 0;  ///< 0 = depth
    int group = 0;  ///< reshard after forward
    Numbers kept{};
    Numbers frozen{};
    bool tape = true;
    Slip slip = Slip::none;
  };
  struct Guess {
    Numbers order;
    std::size_t cursor = 0;
  };
  struct Pass {
    std::vector<std::string> lines;     ///< issue, wait, forward_begin, backward_begin
    int most = 0;                       ///< units that have memory at once
    std::vector<std::string> states{};  ///< at the end, by unit
  };

  explicit Handout(Options options);
  /// The options of a case.
  static Options options_of(const Case& asked);

  static bool advance(Guess& guess, int unit);
  void reshard_stale(const Guess& guess);
  void start_ahead(const Guess& guess, const std::string& phase);
  /// How a forward is run.
  struct Run {
    bool tape = true;
    bool resets = true;      ///< a step begins with it: every unit is sharded first
    int throws_before = -1;  ///< a place in the order, or -1
  };
  /// One call each of the units of `order` (as Program::order has it).
  Pass forward(const Numbers& order, const Run& run);
  /// `reduces`: the last micro-step of a reduction.
  Pass backward(bool reduces = true);

  // What the steps work on.
  std::vector<UnitState> states;
  Numbers ahead;
  Numbers recorded;
  std::vector<std::string> lines;

 private:
  bool has(Slip slip) const { return options_.slip == slip; }
  bool is_kept(int unit) const;
  bool is_frozen(int unit) const;
  std::vector<bool> reached() const;
  void guess_backward();
  UnitState& state(int unit) { return states.at(static_cast<std::size_t>(unit)); }
  void issue(int unit, const std::string& phase);
  void reshard(int unit);
  void begin_pass();
  Pass end_pass();

  Options options_;
  std::vector<std::string> phases_;  // of the gather in flight, by unit
  Numbers order_;                    // calls of the last forward, complete or not
  Numbers before_;                   // the record that was its guess
  Numbers first_;                    // the first record
  Guess backward_;
  int most_ = 0;
};

/// "You did this; or you did that"
std::string any_of(const std::vector<std::string>& mistakes);
/// "layers.0"
std::string unit_name(int number);
/// "sharded", …
std::vector<std::string> names_of(const std::vector<UnitState>& states);
/// Waits that follow one another, in alphabetical order: among several stale units there is none.
std::vector<std::string> in_order(std::vector<std::string> lines);

}  // namespace fsdp::graded
