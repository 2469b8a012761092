// What Perfetto is given: valid, complete, and in its own terms.
#include "report/chrome_trace.h"

#include "report/runs.h"
#include "support/catch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace fsdp::testing {
namespace {

using nlohmann::json;
using report::RankRecord;
using report::RunRecord;

json events_of(const RunRecord& record) {
  return json::parse(to_chrome_json(record)).at("traceEvents");
}

int count(const json& events, const std::string& phase, const std::string& name, int rank) {
  int found = 0;
  for (const json& event : events) {
    found += event.at("ph") == phase && event.at("name") == name && event.at("pid") == rank;
  }
  return found;
}

TEST_CASE("every event has what the format asks of its kind", "[report]") {
  for (const RunRecord* record : {&fake_run(), &real_run(), &ddp_run()}) {
    std::set<std::string> phases;
    std::map<int, int> flows;  // id: begun minus ended
    for (const json& event : events_of(*record)) {
      const std::string phase = event.at("ph");
      phases.insert(phase);
      CHECK(event.at("name").is_string());
      CHECK(event.at("pid").is_number_integer());
      CHECK(event.at("tid").is_number_integer());
      if (phase != "M") CHECK(event.at("ts").get<double>() >= 0);
      if (phase == "X") CHECK(event.at("dur").get<double>() >= 0);
      if (phase == "s") ++flows[event.at("id")];
      if (phase == "f") --flows[event.at("id")];
    }
    // Blocks of DDP belong to no unit, so their coming and going is no event.
    if (record != &ddp_run()) CHECK(phases.erase("i") == 1);
    CHECK(phases == std::set<std::string>{"C", "M", "X", "f", "s"});
    for (const auto& [id, open] : flows) CHECK(open == 0);
  }
}

TEST_CASE("bars of a thread nest", "[report]") {
  // Perfetto draws what crosses wrongly. Times are told in microseconds as double: one part in
  // 10^12 is rounding.
  const double rounding = 1e-6;
  for (const RunRecord* record : {&fake_run(), &real_run()}) {
    std::map<std::tuple<int, int>, std::vector<double>> open;
    for (const json& event : events_of(*record)) {
      if (event.at("ph") != "X") continue;
      std::vector<double>& ends = open[{event.at("pid"), event.at("tid")}];
      const double begin = event.at("ts");
      const double end = begin + event.at("dur").get<double>();
      while (!ends.empty() && ends.back() <= begin + rounding) ends.pop_back();
      if (!ends.empty()) CHECK(end <= ends.back() + rounding);
      ends.push_back(end);
    }
    CHECK(open.size() == 3 * record->ranks.size());  // three streams a rank
  }
}

TEST_CASE("every gather and every free of every unit is there", "[report]") {
  for (const RunRecord* record : {&fake_run(), &real_run()}) {
    const json events = events_of(*record);
    for (const RankRecord& rank : record->ranks) {
      for (const std::string& unit : units_of(*record)) {
        INFO("rank " << rank.rank << ", unit " << unit);
        const auto gathers = bytes_of(rank, EventKind::issue, "all_gather", unit);
        const auto frees = bytes_of(rank, EventKind::free, "unsharded_param", unit);
        CHECK_FALSE(gathers.empty());
        CHECK(frees.size() == gathers.size());  // what is gathered goes again
        CHECK(count(events, "X", "all_gather " + unit, rank.rank) ==
              static_cast<int>(gathers.size()));
        CHECK(count(events, "i", "free unsharded_param " + unit, rank.rank) ==
              static_cast<int>(frees.size()));
      }
    }
  }
}

TEST_CASE("the counter of memory reaches the tracker's peak", "[report]") {
  const RunRecord& record = fake_run();
  std::map<int, std::int64_t> highest;
  for (const json& event : events_of(record)) {
    if (event.at("ph") != "C") continue;
    std::int64_t total = 0;
    for (const auto& [kind, nbytes] : event.at("args").items()) total += nbytes.get<std::int64_t>();
    std::int64_t& most = highest[event.at("pid")];
    most = std::max(most, total);
  }
  REQUIRE(highest.size() == 2);
  for (const RankRecord& rank : record.ranks) CHECK(highest[rank.rank] == rank.peak.total());
}

}  // namespace
}  // namespace fsdp::testing
