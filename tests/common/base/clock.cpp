#include "base/clock.h"

#include "support/catch.h"

#include <algorithm>

using namespace fsdp;

namespace {
const CostModel kModel{.ps_per_flop = 2, .ps_per_byte = 10, .alpha_ps = 100, .link_ps_per_byte = 3};
}

TEST_CASE("a kernel takes as long as the slower of its arithmetic and its traffic") {
  VirtualClock clock(kModel);
  clock.compute({.flops = 50, .nbytes = 1});
  CHECK(clock.now() == 100);
  clock.compute({.flops = 1, .nbytes = 7});
  CHECK(clock.now() == 170);
  clock.compute({});
  CHECK(clock.now() == 170);
}

TEST_CASE("arithmetic in 16 bits has a speed of its own, if one is given") {
  VirtualClock alike(kModel);
  alike.compute({.flops = 50, .is_half = true});
  CHECK(alike.now() == 100);
  CostModel model = kModel;
  model.ps_per_flop_16 = 1;
  VirtualClock clock(model);
  clock.compute({.flops = 50, .is_half = true});
  CHECK(clock.now() == 50);
  clock.compute({.flops = 50});
  CHECK(clock.now() == 150);
  clock.compute({.flops = 1, .nbytes = 7, .is_half = true});
  CHECK(clock.now() == 220);
}

TEST_CASE("a collective takes (W-1) alpha + bytes, from issue or from when the channel is free") {
  VirtualClock clock(kModel);
  clock.compute({.flops = 500});
  CHECK(clock.start_collective(4, 20) == 1000 + 3 * 100 + 60);  // free: begins now
  CHECK(clock.start_collective(1, 0) == 1360);                  // queues; costs nothing alone
  CHECK(clock.start_collective(2, 10) == 1360 + 100 + 30);      // queues behind the first
  CHECK(clock.now() == 1000);                                   // issuing takes no time
  CHECK(clock.channel_free() == 1490);
}

TEST_CASE("waiting joins the two timelines, and never turns time back") {
  VirtualClock clock(kModel);
  const std::int64_t done = clock.start_collective(2, 100);
  clock.compute({.flops = 10});
  clock.wait_until(done);
  CHECK(clock.now() == 400);
  clock.wait_until(20);
  CHECK(clock.now() == 400);
}

TEST_CASE("computation hides communication: K units with prefetch take g + (K-1) max(f,g) + f") {
  const int units = 5;
  for (const double flops : {50.0, 200.0, 400.0}) {  // communication-bound, balanced, compute-bound
    VirtualClock clock(kModel);
    const std::int64_t g = 100 + 100 * 3;
    const auto f = static_cast<std::int64_t>(flops) * 2;
    std::int64_t ready = clock.start_collective(2, 100);
    for (int k = 0; k < units; ++k) {
      clock.wait_until(ready);
      if (k + 1 < units) ready = clock.start_collective(2, 100);
      clock.compute({.flops = flops});
    }
    CHECK(clock.now() == g + (units - 1) * std::max(f, g) + f);
  }
}

TEST_CASE("a copy over the bus takes the time of its bytes, after the copy before it") {
  VirtualClock clock({.ps_per_flop = 1, .bus_ps_per_byte = 4});
  CHECK(clock.start_copy(10) == 40);
  CHECK(clock.start_copy(5) == 60);
  clock.compute({.flops = 100});
  CHECK(clock.start_copy(5) == 120);
  CHECK(clock.bus_free() == 120);
  CHECK(clock.now() == 100);  // beside the computation, and beside the channel
  CHECK(clock.start_collective(2, 0) == 100);
}

TEST_CASE("a collective begins when its operands are there") {
  VirtualClock clock(kModel);
  CHECK(clock.start_collective(2, 10, false, 1000) == 1000 + 100 + 30);
  CHECK(clock.start_collective(2, 10, false, 500) == 1130 + 130);  // long there: behind the first
}
