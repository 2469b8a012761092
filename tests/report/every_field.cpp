// The page's data and the trace, field by field: each number is the one that its place is for.
#include "report/chrome_trace.h"
#include "report/html_page.h"
#include "report/memory_curve.h"
#include "report/palette.h"
#include "report/runs.h"
#include "report/timeline.h"
#include "support/catch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace fsdp::testing {
namespace {

using nlohmann::json;
using report::Lane;
using report::RankRecord;
using report::RunRecord;
using report::Span;

const std::vector<const RunRecord*>& every_run() {
  static const std::vector<const RunRecord*> kRuns{&fake_run(), &real_run(), &ddp_run()};
  return kRuns;
}

/// As the page numbers units: -1 is none.
int number_of(const std::string& unit, const std::vector<std::string>& units) {
  const auto found = std::ranges::find(units, unit);
  return found == units.end() ? -1 : static_cast<int>(found - units.begin());
}

json expected_rank(const RunRecord& record, const RankRecord& rank) {
  const std::vector<std::string> units = units_of(record);
  json spans = json::array(), events = json::array(), changes = json::array();
  for (const Span& span : spans_of(record, rank)) {
    spans.push_back({static_cast<int>(span.lane), static_cast<int>(span.activity),
                     number_of(span.unit, units), span.begin, span.end, span.depth, span.operation,
                     name_of(span.phase), span.issued, span.waited, span.nbytes});
  }
  for (const Event& event : rank.events) {
    events.push_back({event.time, number_of(event.unit, units), name_of(event.kind), event.name,
                      name_of(event.phase), event.nbytes, event.duration});
  }
  for (const report::MemoryChange& change : memory_changes(rank)) {
    changes.push_back({change.time, static_cast<int>(change.kind), change.delta,
                       number_of(report::unit_of(change.owner, units), units),
                       change.hands_over ? 1 : 0});
  }
  return {{"rank", rank.rank}, {"end", rank.end},  {"peak", rank.peak.total()},
          {"spans", spans},    {"events", events}, {"changes", changes}};
}

double microseconds(std::int64_t picoseconds) { return static_cast<double>(picoseconds) / 1e6; }

/// The trace's events of one kind and rank, in order.
json traced(const json& trace, const std::string& phase, int rank) {
  json found = json::array();
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase && event.at("pid") == rank) found.push_back(event);
  }
  return found;
}

TEST_CASE("every field of the page's data is that of the record", "[report]") {
  for (const RunRecord* record : every_run()) {
    const json data = json::parse(to_page_json(*record));
    CHECK(data.at("world_size") == record->world_size);
    REQUIRE(data.at("ranks").size() == record->ranks.size());
    for (std::size_t i = 0; i < record->ranks.size(); ++i) {
      const json expected = expected_rank(*record, record->ranks[i]);
      for (const auto& [key, value] : expected.items()) {
        INFO("rank " << i << ", " << key);
        CHECK(data.at("ranks").at(i).at(key) == value);
      }
    }
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const json& named = data.at("kinds").at(static_cast<std::size_t>(kind));
      CHECK(report::kStack.at(named.at("place")) == static_cast<MemoryKind>(kind));
    }
  }
}

TEST_CASE("the trace names each stream of each rank once", "[report]") {
  for (const RunRecord* record : every_run()) {
    const json trace = json::parse(to_chrome_json(*record));
    CHECK(trace.at("displayTimeUnit") == "ns");
    for (const RankRecord& rank : record->ranks) {
      json expected = json::array();
      const auto add = [&](const char* name, int thread, const char* key, const json& value) {
        expected.push_back({{"ph", "M"},
                            {"name", name},
                            {"pid", rank.rank},
                            {"tid", thread},
                            {"args", {{key, value}}}});
      };
      add("process_name", 0, "name", "rank " + std::to_string(rank.rank));
      add("process_sort_index", 0, "sort_index", rank.rank);
      for (int lane = 0; lane < lanes_of(*record); ++lane) {
        add("thread_name", lane, "name", std::string(name_of(static_cast<Lane>(lane))));
        add("thread_sort_index", lane, "sort_index", lane);
      }
      CHECK(traced(trace, "M", rank.rank) == expected);
    }
  }
}

TEST_CASE("every bar of the trace is a span, with an arrow from its call", "[report]") {
  for (const RunRecord* record : every_run()) {
    const json trace = json::parse(to_chrome_json(*record));
    for (const RankRecord& rank : record->ranks) {
      const json bars = traced(trace, "X", rank.rank);
      const json calls = traced(trace, "s", rank.rank), begins = traced(trace, "f", rank.rank);
      const std::vector<Span> spans = spans_of(*record, rank);
      REQUIRE(bars.size() == spans.size());
      std::size_t arrow = 0;
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const Span& span = spans[i];
        const json& bar = bars.at(i);
        CAPTURE(rank.rank, i, span.operation, span.unit);
        CHECK(bar.at("tid") == static_cast<int>(span.lane));
        CHECK(bar.at("ts") == microseconds(span.begin));
        CHECK(bar.at("dur") == microseconds(span.end - span.begin));
        CHECK(bar.at("cat") == name_of(span.activity));
        CHECK(bar.at("args").at("unit") == span.unit);
        if (span.lane == Lane::compute) continue;
        CHECK(bar.at("args").at("phase") == name_of(span.phase));
        CHECK(bar.at("args").at("bytes received") == span.nbytes);
        CHECK(bar.at("args").at("sequence") == span.sequence);
        CHECK(bar.at("args").at("issued") == microseconds(span.issued));
        const json &call = calls.at(arrow), &begin = begins.at(arrow);
        ++arrow;
        CHECK(call.at("ts") == microseconds(span.issued));
        CHECK(call.at("tid") == static_cast<int>(Lane::compute));
        CHECK(begin.at("ts") == microseconds(span.begin));
        CHECK(begin.at("tid") == static_cast<int>(span.lane));
        CHECK(call.at("id") == begin.at("id"));
      }
      CHECK(calls.size() == arrow);
    }
  }
}

TEST_CASE("every allocation and every count of memory of the trace is the record's", "[report]") {
  for (const RunRecord* record : every_run()) {
    const json trace = json::parse(to_chrome_json(*record));
    for (const RankRecord& rank : record->ranks) {
      json expected = json::array();
      for (const Event& each : rank.events) {
        if (each.kind != EventKind::alloc && each.kind != EventKind::free) continue;
        expected.push_back({microseconds(each.time), each.nbytes, each.unit});
      }
      json found = json::array();
      for (const json& event : traced(trace, "i", rank.rank)) {
        found.push_back(
            {event.at("ts"), event.at("args").at("bytes"), event.at("args").at("unit")});
      }
      CHECK(found == expected);

      const std::vector<report::MemoryPoint> curve = memory_curve(rank);
      const json counts = traced(trace, "C", rank.rank);
      REQUIRE(counts.size() == curve.size());
      for (std::size_t i = 0; i < curve.size(); ++i) {
        CAPTURE(rank.rank, i);
        CHECK(counts.at(i).at("ts") == microseconds(curve[i].time));
        for (const MemoryKind kind : report::kStack) {
          CHECK(counts.at(i).at("args").at(std::string(lower_name_of(kind))) ==
                curve[i].bytes[kind]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::testing
