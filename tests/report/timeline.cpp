// Bars: what lies beside what, what inside what, and where transfers begin and end.
#include "report/timeline.h"

#include "report/runs.h"
#include "support/catch.h"

#include <algorithm>
#include <map>

namespace fsdp::testing {
namespace {

using report::Activity;
using report::Lane;
using report::RankRecord;
using report::RunRecord;
using report::Span;

/// The first two bars that neither lie apart nor one inside the other, as a sentence.
std::string first_crossing(const std::vector<Span>& spans) {
  for (const Span& a : spans) {
    for (const Span& b : spans) {
      if (a.lane != b.lane || !(a.begin < b.begin && b.begin < a.end && a.end < b.end)) continue;
      return std::string(name_of(a.activity)) + " of " + a.unit + " and " +
             std::string(name_of(b.activity)) + " of " + b.unit;
    }
  }
  return {};
}

std::vector<Span> only(const std::vector<Span>& spans, Activity activity, const std::string& unit) {
  std::vector<Span> some;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(some),
               [&](const Span& span) { return span.activity == activity && span.unit == unit; });
  return some;
}

/// A record with one rank, whose clock is virtual: 1 ps a byte and 10 ps a hop.
RunRecord by_hand(std::vector<Event> events, bool is_virtual) {
  RunRecord record;
  record.world_size = 2;
  if (is_virtual) record.cost_model = CostModel{.alpha_ps = 10, .link_ps_per_byte = 1};
  record.ranks.resize(1);
  record.ranks[0].end = 1000;
  record.ranks[0].events = std::move(events);
  return record;
}

Event issue(const std::string& unit, std::int64_t time, std::int64_t sequence,
            const std::string& name = "all_gather") {
  Event event = make_event(EventKind::issue, unit, time, name);
  event.nbytes = 90;
  event.sequence = sequence;
  event.ranks = 2;
  return event;
}

Event wait(Event issued, std::int64_t time, std::int64_t duration) {
  issued.kind = EventKind::wait;
  issued.time = time;
  issued.duration = duration;
  return issued;
}

TEST_CASE("with a virtual clock transfers follow each other on one link", "[report]") {
  const RunRecord record = by_hand({issue("a", 0, 0), issue("b", 40, 1, "reduce_scatter"),
                                    wait(issue("a", 0, 0), 100, 60), issue("c", 500, 2)},
                                   true);
  const std::vector<Span> spans = spans_of(record, record.ranks[0]);
  const Span a = only(spans, Activity::gather, "a").at(0);
  const Span b = only(spans, Activity::reduce, "b").at(0);
  const Span c = only(spans, Activity::gather, "c").at(0);
  CHECK(a.begin == 0);
  CHECK(a.end == 100);  // a hop and 90 bytes
  CHECK(a.waited == 100);
  CHECK(b.issued == 40);
  CHECK(b.begin == 100);  // when the link falls free
  CHECK(b.end == 200);
  CHECK(b.waited == -1);
  CHECK(c.begin == 500);
  const Span stall = only(spans, Activity::wait, "a").at(0);
  CHECK(stall.lane == Lane::compute);
  CHECK(stall.begin == 40);
  CHECK(stall.end == 100);
}

TEST_CASE("without a clock a transfer ends where waiting for it ended", "[report]") {
  const RunRecord record =
      by_hand({issue("a", 0, 0), issue("b", 10, 1), wait(issue("a", 0, 0), 100, 0),
               wait(issue("b", 10, 1), 300, 0), issue("c", 400, 2, "all_reduce")},
              false);
  const std::vector<Span> spans = spans_of(record, record.ranks[0]);
  CHECK(only(spans, Activity::gather, "a").at(0).end == 100);
  CHECK(only(spans, Activity::gather, "b").at(0).begin == 100);
  CHECK(only(spans, Activity::gather, "b").at(0).issued == 10);
  CHECK(only(spans, Activity::gather, "b").at(0).end == 300);
  CHECK(only(spans, Activity::reduce, "c").at(0).end == 1000);  // nobody waited
  CHECK(only(spans, Activity::wait, "a").empty());              // it took no time
}

TEST_CASE("without a clock a transfer may end long before somebody waits for it", "[report]") {
  Event waited = wait(issue("a", 0, 0), 300, 0);
  waited.ended = 80;
  const RunRecord record = by_hand(
      {issue("a", 0, 0), issue("b", 10, 1), waited, wait(issue("b", 10, 1), 400, 0)}, false);
  const std::vector<Span> spans = spans_of(record, record.ranks[0]);
  CHECK(only(spans, Activity::gather, "a").at(0).end == 80);
  CHECK(only(spans, Activity::gather, "a").at(0).waited == 300);
  CHECK(only(spans, Activity::gather, "b").at(0).begin == 80);
}

TEST_CASE("a unit inside a unit lies inside its bar", "[report]") {
  using enum EventKind;
  const RunRecord record =
      by_hand({make_event(forward_begin, "root", 0), make_event(forward_begin, "a", 10),
               make_event(forward_end, "a", 20), make_event(forward_begin, "a", 20),
               make_event(forward_end, "a", 30), make_event(forward_end, "root", 50),
               make_event(backward_end, "lost", 55), make_event(backward_begin, "open", 60)},
              true);
  const std::vector<Span> spans = spans_of(record, record.ranks[0]);
  CHECK(only(spans, Activity::forward, "root").at(0).end == 50);
  CHECK(only(spans, Activity::forward, "root").at(0).depth == 0);
  REQUIRE(only(spans, Activity::forward, "a").size() == 2);
  for (const Span& span : only(spans, Activity::forward, "a")) CHECK(span.depth == 1);
  CHECK(only(spans, Activity::backward, "lost").empty());
  CHECK(only(spans, Activity::backward, "open").at(0).end == 1000);
}

TEST_CASE("bars of a stream lie apart or inside each other", "[report]") {
  for (const RunRecord* record : {&fake_run(), &real_run(), &ddp_run()}) {
    for (const RankRecord& rank : record->ranks) {
      const std::vector<Span> spans = spans_of(*record, rank);
      CHECK(spans.size() > 10);
      CHECK(first_crossing(spans).empty());
      for (const Span& span : spans) {
        CHECK((0 <= span.begin && span.begin <= span.end && span.end <= rank.end));
        CHECK(span.depth == 0);  // no unit of these models is inside another
      }
    }
  }
}

TEST_CASE("on the virtual clock the one link carries one transfer at a time", "[report]") {
  for (const RunRecord* record : {&fake_run(), &ddp_run()}) {
    std::vector<Span> transfers = spans_of(*record, record->ranks[0]);
    std::erase_if(transfers, [](const Span& span) { return span.lane == Lane::compute; });
    REQUIRE(transfers.size() > 2);
    for (std::size_t i = 1; i < transfers.size(); ++i) {
      CHECK(transfers[i - 1].end <= transfers[i].begin);
    }
    for (const Span& span : transfers) {
      CHECK(span.issued <= span.begin);
      CHECK(span.waited >= span.end);  // and all of these are waited for
    }
  }
}

TEST_CASE("a unit computes after its gather and is reduced after its backward", "[report]") {
  for (const RunRecord* record : {&fake_run(), &real_run()}) {
    for (const RankRecord& rank : record->ranks) {
      const std::vector<Span> spans = spans_of(*record, rank);
      for (const std::string& unit : units_of(*record)) {
        const std::vector<Span> gathers = only(spans, Activity::gather, unit);
        const std::vector<Span> forwards = only(spans, Activity::forward, unit);
        const std::vector<Span> backwards = only(spans, Activity::backward, unit);
        const std::vector<Span> reduces = only(spans, Activity::reduce, unit);
        INFO("unit " << unit);
        REQUIRE(forwards.size() == backwards.size());
        REQUIRE(reduces.size() == backwards.size());
        const bool is_last = unit == units_of(*record).back();  // kept until backward
        CHECK(gathers.size() == (is_last ? 1 : 2) * forwards.size());
        for (std::size_t i = 0; i < forwards.size(); ++i) {
          CHECK(gathers[i * gathers.size() / forwards.size()].end <= forwards[i].begin);
          CHECK(backwards[i].end <= reduces[i].begin);
        }
      }
    }
  }
}

TEST_CASE("DDP has reductions, and neither gathers nor shards", "[report]") {
  const RunRecord& record = ddp_run();
  std::map<Activity, int> counts;
  for (const Span& span : spans_of(record, record.ranks[0])) ++counts[span.activity];
  CHECK(counts[Activity::gather] == 0);
  CHECK(counts[Activity::reduce] > 1);
  CHECK(counts[Activity::forward] == 4);
  CHECK(counts[Activity::backward] == 4);
  CHECK(counts[Activity::step] == 1);
  CHECK(record.ranks[0].peak[MemoryKind::sharded_param] == 0);
}

}  // namespace
}  // namespace fsdp::testing
