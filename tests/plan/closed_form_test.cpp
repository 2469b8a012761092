// K equal units: the timing of a step is the closed form, and the reference scheduler's.
#include "paper/step_walk.h"
#include "support/catch.h"
#include "support/schedule.h"

#include <string>

namespace fsdp::testing::closed_form_of_time {
namespace {

using paper::KernelTimes;
using paper::MemoryOptions;
using paper::ModelShape;
using paper::SegmentTimes;

constexpr std::int64_t kNumel = 64;  // of a unit, on 2 ranks: a gather of 128 bytes
constexpr CostModel kLink{.link_ps_per_byte = 8};

/// Units that compute f and b.
paper::StepTime time_of(const ScheduleCase& units) {
  ModelShape shape;
  for (int k = 0; k < units.units; ++k) {
    shape.segments.push_back(std::to_string(k));
    shape.unit_of_segment.push_back(k);
    shape.units.push_back({shape.segments.back(), {{kNumel, 2}}, k + 1 == units.units});
  }
  MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.ranks = 2;
  options.recipe.sharding.prefetch_depth = units.depth;
  const SegmentTimes each{units.forward, units.backward, {}};
  const KernelTimes kernels{each, each, each, {}};
  // Of the bytes, no more than that everything is trained.
  paper::SegmentMemory trained;
  trained.backward = {{"entry"}, {"linear"}};
  const paper::Segments segments(static_cast<std::size_t>(units.units),
                                 std::make_shared<const paper::SegmentMemory>(trained));
  paper::Books books(options);
  books.open_clock(kLink, kernels);
  paper::StepWalk walk(shape, {.segments = segments}, options, books);
  walk.next_step();
  books.take_time();
  walk.next_step();
  return books.take_time();
}

ScheduleCase equal_units(int units, std::int64_t forward, int depth) {
  const std::int64_t gather = 128 * 8;
  return {.units = units,
          .forward = forward,
          .backward = 2 * forward,
          .gather = gather,
          .reduce = gather,
          .depth = depth};
}

}  // namespace

TEST_CASE("Equal units, one ahead, take what the closed form says") {
  for (const int units : {2, 3, 8, 48}) {
    for (const std::int64_t forward : {100, 512, 700, 1024, 5000}) {
      const ScheduleCase these = equal_units(units, forward, 1);
      CAPTURE(units, forward);
      CHECK(time_of(these).total() == formula(these).total());
    }
  }
}

TEST_CASE("Equal units, none or several ahead, take what the reference scheduler says") {
  for (const int depth : {0, 1, 2, 9}) {
    for (const std::int64_t forward : {100, 700, 5000}) {
      const ScheduleCase these = equal_units(7, forward, depth);
      CAPTURE(depth, forward);
      CHECK(time_of(these).total() == play(these).total());
    }
  }
}

TEST_CASE("What a step was spent on adds up, and says what was waited for") {
  using enum paper::TimePart;
  const ScheduleCase serial = equal_units(4, 5000, 0);
  const paper::StepTime time = time_of(serial);
  CHECK(time.split[forward] == 4 * 5000);
  CHECK(time.split[backward] == 8 * 5000);
  CHECK(time.split[gathers] == 4 * 1024 + 3 * (1024 + 1024));  // behind a reduction in backward
  CHECK(time.split[reductions] == 1024);                       // only the last one is seen
  CHECK(time.channels.transfer == (7 + 4) * 1024);
  CHECK(time.channels.latency == 0);
}

}  // namespace fsdp::testing::closed_form_of_time
