// When offload costs no time: copies over a bus that is just fast enough, and over one that is not,
// to the picosecond.
#include "support/catch.h"
#include "timed_stack.h"

#include <algorithm>

namespace fsdp::testing::offload_test {
namespace {

constexpr optim::Offload kParams{.params = true};
constexpr optim::Offload kAll{.params = true, .grads = true};
constexpr double kShardBytes = 128;  // 4·n, of a unit at W = 2

/// f = 1024, b = 2048, g = ρ = 256, and a bus on which a copy takes `copy` picoseconds.
TimedCase bus(double copy, optim::Offload offload, int depth = 1) {
  TimedCase timed;
  timed.units = 6;
  timed.link_ps_per_byte = 2;
  timed.offload = offload;
  timed.bus_ps_per_byte = copy / kShardBytes;
  timed.depth = depth;
  return timed;
}

}  // namespace

TEST_CASE("The costs of an offloaded unit are those of the bus") {
  const ScheduleCase costs = costs_of(bus(768, kAll));
  CHECK(costs.forward == 1024);
  CHECK(costs.gather == 256);
  CHECK(costs.copy_in == 768);
  CHECK(costs.copy_out == 768);
}

// One unit ahead: its copy and its gather, one after the other, have the time of one unit.
TEST_CASE("Forward hides the copies if h + g <= f, and not a picosecond more") {
  const std::int64_t f = 1024, g = 256, last = 768;
  for (const optim::Offload offload : {kParams, kAll}) {
    for (const std::int64_t h : {last - 1, last}) {
      CHECK(time_iteration(bus(static_cast<double>(h), offload)).forward == h + g + 6 * f);
    }
    const std::int64_t h = last + 1;
    CHECK(time_iteration(bus(static_cast<double>(h), offload)).forward == h + g + 6 * f + 5);
  }
}

TEST_CASE("Backward hides the copies if max(rho, h_g + h) + g <= b, and not a picosecond more") {
  const std::int64_t b = 2048, last = 896;  // 2·896 + 256 = b
  const auto time = [](std::int64_t copy) {
    return time_iteration(bus(static_cast<double>(copy), kAll)).backward;
  };
  for (const std::int64_t copy : {std::int64_t{100}, last - 1, last}) {
    const std::int64_t rho = 256, h_g = copy;
    CHECK(time(copy) == 6 * b + std::max(rho, h_g) + h_g);  // only the last copies are waited for
  }
  const std::int64_t h_g = last + 1;
  CHECK(time(h_g) > 6 * b + h_g + h_g);
  CHECK(time(h_g) == play(costs_of(bus(static_cast<double>(h_g), kAll))).backward);
}

TEST_CASE("Without offload of gradients their sums are copied at the end, all in a row") {
  const std::int64_t b = 2048, rho = 256, h = 700;
  CHECK(time_iteration(bus(h, kParams)).backward == 6 * b + rho + 6 * h);
}

// Two units ahead, the copy of one goes on beside the gather of the other.
TEST_CASE("With depth 2, forward hides the copies if h <= f and g <= f") {
  const std::int64_t f = 1024, g = 256;
  for (const std::int64_t h : {std::int64_t{769}, f}) {
    CHECK(time_iteration(bus(static_cast<double>(h), kParams, 2)).forward == 2 * (h + g) + 5 * f);
  }
  const std::int64_t h = f + 1;
  CHECK(time_iteration(bus(static_cast<double>(h), kParams, 2)).forward > 2 * (h + g) + 5 * f);
}

TEST_CASE("Any bus, link and depth take what the reference scheduler says") {
  TimedCase timed = bus(GENERATE(1, 300, 800, 1000, 1500, 4000), kAll, GENERATE(0, 1, 2, 3));
  timed.link_ps_per_byte = GENERATE(0.0, 2.0, 8.0, 40.0);
  timed.units = GENERATE(1, 2, 7);
  timed.limit = GENERATE(0, 1);
  CAPTURE(timed.bus_ps_per_byte, timed.link_ps_per_byte, timed.depth, timed.units, timed.limit);
  CHECK(time_iteration(timed) == play(costs_of(timed)));
}

}  // namespace fsdp::testing::offload_test
