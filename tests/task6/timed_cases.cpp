#include "graded/expect.h"
#include "support/schedule.h"
#include "task6/cases.h"

namespace fsdp::graded {
namespace {

/// f = 2·R·d², b = 2f (two products), g = (W-1)·(α + 4·n·link), r the same with more bytes.
testing::ScheduleCase costs_of(const Json& options) {
  constexpr std::int64_t kWidth = 8;
  const int ranks = options.value("ranks", 2);
  const std::int64_t alpha = options.value("alpha", std::int64_t{0});
  const auto flop = options.value("ps_per_flop", 1.0);
  const double shard_bytes = 4.0 * kWidth * kWidth / ranks;
  const auto carried = static_cast<std::int64_t>(shard_bytes * options.value("ps_per_byte", 0.0));
  testing::ScheduleCase costs;
  costs.units = options.value("units", 4);
  costs.forward = static_cast<std::int64_t>(2 * kWidth * kWidth * kWidth * flop);
  costs.backward = 2 * costs.forward;
  costs.gather = (ranks - 1) * (alpha + carried);
  costs.reduce = (ranks - 1) * (alpha + options.value("reduce_factor", 1) * carried);
  costs.depth = options.value("depth", 1);
  costs.limit = options.value("limit", 0);
  return costs;
}

}  // namespace

void judge_time(const char* step, const Setup& setup) {
  Setup asked = setup;
  const bool backward = std::string(step) == "6.5";
  asked.options["backward"] = backward;
  const Observations& seen = run("timed", asked);
  const testing::ScheduleCase costs = costs_of(seen.asked().options);
  testing::ScheduleCase without = costs;
  without.depth = 0;
  const testing::ScheduleTimes right = testing::play(costs), serial = testing::play(without);
  Check check(step,
              backward ? "backward takes max(b, g) + (K-2)·max(b, g+ρ) + max(b, ρ) + ρ at depth "
                         "1: gathers run while units compute"
                       : "forward takes g + (K-1)·max(f, g) + f: gathers run while units compute",
              seen);
  const std::string half = backward ? "backward" : "forward";
  const auto expect = [&](const std::string& name, std::int64_t expected, std::int64_t slow) {
    const std::int64_t observed = seen.number(0, name);
    check.at(0).equal(
        "the virtual time of " + name + ", in picoseconds", observed, expected,
        {{observed == slow, "this is the time of depth 0: no gather overlaps with computation"},
         {observed > slow,
          "this is longer than depth 0 takes: some gathered units are never used"}});
  };
  if (backward) {
    expect("backward 0", right.backward, serial.backward);  // knows its order already
    expect("backward 1", right.backward, serial.backward);
  } else {
    expect("forward 0", serial.forward, serial.forward);  // knows no order yet
    expect("forward 1", right.forward, serial.forward);
  }
}

}  // namespace fsdp::graded
