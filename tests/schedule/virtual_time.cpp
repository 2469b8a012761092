// The time of an iteration on the virtual clock: what the formula says, to the picosecond.
#include "support/catch.h"
#include "timed_stack.h"

#include <algorithm>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// A link of the given speed at W = 2, where a unit's gather is 128 bytes and f is 1024 ps.
TimedCase link(double ps_per_byte) {
  TimedCase timed;
  timed.link_ps_per_byte = ps_per_byte;
  return timed;
}

const TimedCase kComputeBound = link(2);         // g = ρ = f / 4
const TimedCase kBalanced = link(8);             // g = ρ = f, b = g + ρ
const TimedCase kBetween = link(12);             // f < g < b < g + ρ
const TimedCase kCommunicationBound = link(40);  // g = 5f

void check_times(const ScheduleTimes& seen, const ScheduleTimes& expected) {
  CHECK(seen.forward == expected.forward);
  CHECK(seen.backward == expected.backward);
}

}  // namespace

TEST_CASE("The costs of a timed unit are those of the links' names") {
  CHECK(costs_of(kComputeBound).gather == 256);
  CHECK(costs_of(kBalanced).gather == costs_of(kBalanced).forward);
  CHECK(costs_of(kCommunicationBound).gather == 5 * costs_of(kCommunicationBound).forward);
  CHECK(costs_of(kBalanced).backward == 2048);
}

TEST_CASE("With one unit ahead an iteration takes what the formula says") {
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kBetween, kCommunicationBound);
  timed.units = GENERATE(2, 3, 8, 48);
  CAPTURE(timed.link_ps_per_byte, timed.units);
  check_times(time_iteration(timed), formula(costs_of(timed)));
}

TEST_CASE("The formula holds for other numbers of ranks and a link with latency") {
  TimedCase timed;
  timed.units = 6;
  timed.world_size = GENERATE(1, 2, 4, 8);
  timed.alpha_ps = GENERATE(0, 100, 3000);
  timed.link_ps_per_byte = 3;
  CAPTURE(timed.world_size, timed.alpha_ps);
  check_times(time_iteration(timed), formula(costs_of(timed)));
}

TEST_CASE("The formula holds when a reduction takes longer than a gather") {
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kBetween, kCommunicationBound);
  timed.reduce_factor = GENERATE(2, 3, 9);
  timed.units = 7;
  CAPTURE(timed.link_ps_per_byte, timed.reduce_factor);
  REQUIRE(costs_of(timed).reduce == timed.reduce_factor * costs_of(timed).gather);
  check_times(time_iteration(timed), formula(costs_of(timed)));
}

TEST_CASE("The formula is a case of the reference scheduler") {
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kBetween, kCommunicationBound);
  timed.units = GENERATE(2, 3, 48);
  timed.reduce_factor = GENERATE(1, 4);
  CHECK(play(costs_of(timed)) == formula(costs_of(timed)));
}

TEST_CASE("Any depth and any in-flight limit take what the reference scheduler says") {
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kBetween, kCommunicationBound);
  timed.units = GENERATE(1, 2, 5, 12);
  timed.depth = GENERATE(0, 1, 2, 3, 20);
  timed.limit = GENERATE(0, 1, 2);
  timed.reduce_factor = GENERATE(1, 3);
  CAPTURE(timed.link_ps_per_byte, timed.units, timed.depth, timed.limit, timed.reduce_factor);
  check_times(time_iteration(timed), play(costs_of(timed)));
}

TEST_CASE("The first forward knows no order, so it hides nothing, its backward already does") {
  TimedCase timed = kBalanced;
  timed.units = 8;
  const ScheduleTimes seen = time_iteration(timed, 0);
  ScheduleCase serial = costs_of(timed);
  serial.depth = 0;
  CHECK(seen.forward == play(serial).forward);
  CHECK(seen.backward == play(costs_of(timed)).backward);
}

TEST_CASE("At the balanced point overlap nearly halves the time of 48 units") {
  TimedCase timed = kBalanced;
  timed.units = 48;
  const std::int64_t f = costs_of(timed).forward;
  const std::int64_t overlapped = time_iteration(timed).total();
  timed.depth = 0;
  const std::int64_t serial = time_iteration(timed).total();
  CHECK(serial == 287 * f);      // K(g+f) + K·b + (K-1)(g+ρ) + ρ
  CHECK(overlapped == 146 * f);  // 1.97 times less
  CHECK(static_cast<double>(serial) >= 1.9 * static_cast<double>(overlapped));
}

TEST_CASE("Parameters kept until backward are gathered once") {
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kCommunicationBound);
  timed.units = 6;
  timed.depth = GENERATE(0, 1, 3);
  timed.reshard = ReshardAfterForward::never();
  const ScheduleCase costs = costs_of(timed);
  const std::int64_t b = costs.backward;
  const std::int64_t rho = costs.reduce;
  check_times(time_iteration(timed), {play(costs).forward, b + 5 * std::max(b, rho) + rho});
}

TEST_CASE("Parameters kept within pairs of ranks are gathered from one neighbor in backward") {
  TimedCase timed = GENERATE(kBalanced, kBetween, kCommunicationBound);
  timed.world_size = GENERATE(4, 8);
  timed.units = 6;
  timed.depth = GENERATE(0, 1, 2);
  timed.reshard = ReshardAfterForward::within(2);
  const ScheduleCase costs = costs_of(timed);
  ScheduleCase near = costs;
  near.gather = static_cast<std::int64_t>(4 * 64 / 2 * timed.link_ps_per_byte);
  check_times(time_iteration(timed), {play(costs).forward, play(near).backward});
}

TEST_CASE("A checkpoint within a unit adds its forward to its backward, a third of the computing") {
  if (FSDP_HAS_TASK8 == 0) return;  // a student kit in which it is not written
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kBetween, kCommunicationBound);
  timed.units = GENERATE(1, 2, 6, 48);
  timed.depth = GENERATE(0, 1, 2);
  ScheduleCase costs = costs_of(timed);
  REQUIRE(costs.backward == 2 * costs.forward);
  costs.backward = 3 * costs.forward;  // 4 f per unit, not 3 f
  timed.checkpoints_inside = true;
  CAPTURE(timed.link_ps_per_byte, timed.units, timed.depth);
  check_times(time_iteration(timed), play(costs));
}

TEST_CASE("A checkpoint around a unit computes the same, and waits for one more gather") {
  if (FSDP_HAS_TASK8 == 0) return;
  TimedCase timed = GENERATE(kComputeBound, kBalanced, kCommunicationBound);
  timed.units = GENERATE(1, 5);
  timed.depth = 0;
  timed.checkpoints_around = true;
  const ScheduleCase costs = costs_of(timed);
  const std::int64_t f = costs.forward, g = costs.gather, rho = costs.reduce, k = timed.units;
  // Nothing is hidden but reductions, behind the next unit: it gathers twice, which queues behind
  // them. The last unit is gathered once, and kept from its second forward on.
  const std::int64_t backward = (g + 3 * f) + (k - 1) * (rho + 2 * g + 3 * f) + rho;
  check_times(time_iteration(timed), {k * (g + f), backward});
}
