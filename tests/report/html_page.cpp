// The page: all of the run is in it, and nothing that has to be fetched.
#include "report/html_page.h"

#include "report/runs.h"
#include "report/timeline.h"
#include "support/catch.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace fsdp::testing {
namespace {

using nlohmann::json;
using report::RankRecord;
using report::RunRecord;

/// What the page's script reads: the text of the element "data".
json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const std::size_t from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST_CASE("the page needs nothing but itself", "[report]") {
  const std::string page = to_html(fake_run());
  for (const char* word : {"http://", "https://", "src=", "@import", "url(/", "fetch(", "{{"}) {
    INFO(word);
    CHECK(page.find(word) == std::string::npos);
  }
  CHECK(page.find(R"(href="data:,")") != std::string::npos);  // no icon is asked for either
}

TEST_CASE("the page carries the run", "[report]") {
  for (const RunRecord* record : {&fake_run(), &real_run(), &ddp_run()}) {
    const json data = data_of(to_html(*record));
    CHECK(data == json::parse(to_page_json(*record)));
    CHECK(data.at("title") == record->title);
    CHECK(data.at("virtual") == record->cost_model.has_value());
    CHECK(data.at("units").get<std::vector<std::string>>() == units_of(*record));
    REQUIRE(data.at("ranks").size() == record->ranks.size());
    for (std::size_t i = 0; i < record->ranks.size(); ++i) {
      const RankRecord& rank = record->ranks[i];
      const json& drawn = data.at("ranks").at(i);
      CHECK(drawn.at("events").size() == rank.events.size());
      CHECK(drawn.at("spans").size() == spans_of(*record, rank).size());
      CHECK(drawn.at("peak") == rank.peak.total());
      std::int64_t held = 0;
      std::int64_t highest = 0;
      for (const json& change : drawn.at("changes")) {
        held += change.at(2).get<std::int64_t>();
        highest = std::max(highest, held);
      }
      CHECK(highest == rank.peak.total());
    }
  }
}

TEST_CASE("no name can end the page's data or its title", "[report]") {
  RunRecord record;
  record.title = "<b>&</script><script>alert(1)</script>";
  record.ranks.resize(1);
  record.ranks[0].events = {make_event(EventKind::forward_begin, "</script>", 0)};
  const std::string page = to_html(record);
  CHECK(page.find("alert(1)</script>") == std::string::npos);
  CHECK(page.find("&lt;b>&amp;&lt;/script>") != std::string::npos);
  const json data = data_of(page);
  CHECK(data.at("title") == record.title);
  CHECK(data.at("units").at(0) == "</script>");
}

}  // namespace
}  // namespace fsdp::testing
