// Hybrid sharding on a modeled machine of several boxes.
#include "report/runs/short_run.h"
#include "report/timeline.h"
#include "support/catch.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::testing::boxes_test {
namespace {

using report::RunRecord;
using report::ShortRun;
using report::Span;

/// Eight ranks in two boxes of four.
RunRecord run(int replicas, int ranks_per_box = 4) {
  ShortRun options;
  options.recipe.ranks = 8;
  options.recipe.replicas = replicas;
  return report::record_fake(options, report::in_boxes(ranks_per_box));
}

struct Transfers {
  std::int64_t far = 0;  // picoseconds
  std::int64_t near = 0;
  std::int64_t shards = 0;  // bytes of the shards that are summed across
  int across = 0;
};

Transfers transfers_of(const RunRecord& record) {
  Transfers all;
  const auto& events = record.ranks[0].events;
  const std::vector<Span> spans = spans_of(record, record.ranks[0]);
  for (const Span& span : spans) {
    if (span.lane == report::Lane::compute) continue;  // waiting for one
    const bool is_across = span.operation == "all_reduce" && span.phase == Phase::gradient;
    (is_across || record.title.find("replicas") == std::string::npos ? all.far : all.near) +=
        span.end - span.begin;
    if (!is_across) continue;
    ++all.across;
    all.shards += span.nbytes;  // of two replicas: 2·(R-1)/R·n·4 = n·4
  }
  int far = 0;
  for (const Event& event : events) far += event.kind == EventKind::issue && event.is_far ? 1 : 0;
  if (record.title.find("replicas") != std::string::npos) CHECK(far == all.across);
  return all;
}

}  // namespace

TEST_CASE("replicas keep gathers inside a box, and send shards across", "[report]") {
  const RunRecord hybrid = run(2);
  const Transfers transfers = transfers_of(hybrid);
  const int units = 6;  // embedding, four blocks, head
  CHECK(transfers.across == units);
  // 10 µs a hop and 1 GB/s.
  CHECK(transfers.far == units * 10'000'000 + 1000 * transfers.shards);
  // All that 8 ranks send, they send across: (W - 1) hops for each collective.
  const RunRecord flat = run(1);
  CHECK(transfers_of(flat).far > 10 * transfers.far);
  CHECK(flat.ranks[0].end > 5 * hybrid.ranks[0].end);
  // In one box the difference is what eight shards save in bytes and cost in hops.
  CHECK(run(1, 8).ranks[0].end < 2 * run(2, 8).ranks[0].end);
}

TEST_CASE("shards travel between boxes while the next unit computes", "[report]") {
  const RunRecord record = run(2);
  std::int64_t waiting = 0;
  for (const Event& event : record.ranks[0].events) {
    if (event.kind == EventKind::wait && event.is_far) waiting += event.duration;
  }
  // That of the last unit is not hidden at all.
  CHECK(waiting > 0);
  CHECK(waiting < transfers_of(record).far * 3 / 4);
}

TEST_CASE("two links need two rows of bars, whichever is faster", "[report]") {
  for (const int far : {20, 50, 100, 150, 200, 400, 1000}) {
    CostModel machine = report::in_boxes(4);
    machine.far_alpha_ps = machine.alpha_ps;
    machine.far_link_ps_per_byte = far;
    ShortRun options;
    options.recipe.ranks = 8;
    options.recipe.replicas = 2;
    const RunRecord record = report::record_fake(options, machine);
    std::vector<std::int64_t> ends(2 * report::kLanes);  // of the last bar in each row
    for (const Span& span : spans_of(record, record.ranks[0])) {
      INFO(far << " " << name_of(span.lane) << " " << span.unit << " " << span.depth);
      if (span.lane == report::Lane::compute) continue;
      REQUIRE(span.depth <= 1);
      std::int64_t& end =
          ends.at(static_cast<std::size_t>(2 * static_cast<int>(span.lane) + span.depth));
      CHECK(span.begin >= end);
      end = span.end;
    }
  }
}

}  // namespace fsdp::testing::boxes_test
