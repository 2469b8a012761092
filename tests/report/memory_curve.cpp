// Memory over time: nothing that the tracker saw may be missing.
#include "report/memory_curve.h"

#include "report/runs.h"
#include "support/catch.h"

namespace fsdp::testing {
namespace {

using report::MemoryPoint;
using report::RankRecord;
using report::RunRecord;

TEST_CASE("the highest point of the curve is the tracker's peak", "[report]") {
  for (const RunRecord* record : {&fake_run(), &real_run(), &ddp_run()}) {
    for (const RankRecord& rank : record->ranks) {
      REQUIRE(rank.peak.total() > 0);
      const std::vector<MemoryPoint> curve = memory_curve(rank);
      CHECK(peak_of(curve).bytes == rank.peak);
      CHECK(peak_of(thinned(curve)).bytes == rank.peak);
      CHECK(replay_peak(rank.memory) == rank.peak);
    }
  }
}

TEST_CASE("the curve begins with what was there and never goes back in time", "[report]") {
  for (const RankRecord& rank : real_run().ranks) {
    const std::vector<MemoryPoint> curve = memory_curve(rank);
    CHECK(curve.size() == rank.memory.size() - rank.opening + 1);
    CHECK(curve.front().time == 0);
    CHECK(curve.front().bytes[MemoryKind::sharded_param] > 0);
    CHECK(curve.front().bytes[MemoryKind::optimizer] > 0);  // one step went before
    CHECK(curve.front().bytes[MemoryKind::unsharded_param] == 0);
    for (std::size_t i = 1; i < curve.size(); ++i) CHECK(curve[i - 1].time <= curve[i].time);
    CHECK(curve.back().bytes[MemoryKind::unsharded_param] == 0);
  }
}

TEST_CASE("bytes that change hands are never counted twice", "[report]") {
  MemoryTracker tracker;
  std::int64_t now = 5;
  tracker.set_time_source([&] { return now; });
  const auto kept = tracker.on_alloc(MemoryKind::buffer, 8, nullptr);
  tracker.set_logging(true);
  tracker.reset_peak();
  RankRecord rank;
  rank.opening = tracker.log().size();
  now = 6;
  const auto block = tracker.on_alloc(MemoryKind::temp, 100, nullptr);
  now = 7;
  tracker.recategorize(block, MemoryKind::sharded_grad);
  tracker.on_free(block);
  now = 8;
  tracker.on_free(kept);
  rank.memory = tracker.log();
  rank.peak = tracker.peak();

  const std::vector<MemoryPoint> curve = memory_curve(rank);
  REQUIRE(curve.size() == 5);
  CHECK(curve[0].bytes.total() == 8);
  CHECK(curve[1].time == 6);
  CHECK(curve[1].bytes[MemoryKind::temp] == 100);
  CHECK(curve[2].bytes[MemoryKind::temp] == 0);
  CHECK(curve[2].bytes[MemoryKind::sharded_grad] == 100);
  CHECK(curve[3].bytes.total() == 8);
  CHECK(curve[4].time == 8);
  CHECK(peak_of(curve).bytes.total() == tracker.peak_total());
  // At time 7 two points: both stay, in order.
  const std::vector<MemoryPoint> few = report::thinned(curve);
  CHECK(few.size() == 5);
}

TEST_CASE("thinning leaves the first, the highest and the last of a moment", "[report]") {
  const auto point = [](std::int64_t time, std::int64_t nbytes) {
    MemoryPoint each{time, {}};
    each.bytes[MemoryKind::temp] = nbytes;
    return each;
  };
  const std::vector<MemoryPoint> few = report::thinned(
      {point(0, 1), point(3, 5), point(3, 2), point(3, 9), point(3, 4), point(3, 3), point(4, 0)});
  std::vector<std::int64_t> totals;
  for (const MemoryPoint& each : few) totals.push_back(each.bytes.total());
  CHECK(totals == std::vector<std::int64_t>{1, 5, 9, 3, 0});
}

TEST_CASE("what a module's forward made belongs to the unit around it", "[report]") {
  const std::vector<std::string> units = {"model.layers.1", "model.layers.10", "root"};
  const auto unit_of_module = [&](const std::string& path) {
    const Owner owner{"", path};
    return report::unit_of(&owner, units);
  };
  CHECK(unit_of_module("model.layers.1") == "model.layers.1");
  CHECK(unit_of_module("model.layers.1.mlp") == "model.layers.1");
  CHECK(unit_of_module("model.layers.10.mlp") == "model.layers.10");
  CHECK(unit_of_module("model.layers.2").empty());
  CHECK(report::unit_of(nullptr, units).empty());
  const Owner owner{"root", "weight"};
  CHECK(report::unit_of(&owner, units) == "root");
}

}  // namespace
}  // namespace fsdp::testing
