#include "report/html_page.h"

#include "base/check.h"
#include "report/memory_curve.h"
#include "report/page_text.h"
#include "report/palette.h"
#include "report/svg.h"
#include "report/timeline.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace fsdp::report {
namespace {

using Json = nlohmann::ordered_json;

/// Units by number; -1 is none.
int index_of(const std::vector<std::string>& units, const std::string& unit) {
  const auto found = std::find(units.begin(), units.end(), unit);
  return found == units.end() ? -1 : static_cast<int>(found - units.begin());
}

Json span_json(const Span& span, const std::vector<std::string>& units) {
  return Json::array({static_cast<int>(span.lane), static_cast<int>(span.activity),
                      index_of(units, span.unit), span.begin, span.end, span.depth, span.operation,
                      name_of(span.phase), span.issued, span.waited, span.nbytes});
}

Json event_json(const Event& event, const std::vector<std::string>& units) {
  return Json::array({event.time, index_of(units, event.unit), name_of(event.kind), event.name,
                      name_of(event.phase), event.nbytes, event.duration});
}

Json rank_json(const RunRecord& record, const RankRecord& rank,
               const std::vector<std::string>& units) {
  Json json;
  json["rank"] = rank.rank;
  json["end"] = rank.end;
  json["peak"] = rank.peak.total();
  json["spans"] = Json::array();
  for (const Span& span : spans_of(record, rank)) json["spans"].push_back(span_json(span, units));
  json["events"] = Json::array();
  for (const Event& event : rank.events) json["events"].push_back(event_json(event, units));
  json["changes"] = Json::array();
  for (const MemoryChange& change : memory_changes(rank)) {
    const int unit = index_of(units, unit_of(change.owner, units));
    json["changes"].push_back(Json::array({change.time, static_cast<int>(change.kind), change.delta,
                                           unit, change.hands_over ? 1 : 0}));
  }
  return json;
}

Json kinds_json() {
  Json kinds = Json::array();  // by number; "place" is where it lies in the stack
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const auto place = std::find(kStack.begin(), kStack.end(), kind) - kStack.begin();
    kinds.push_back({{"name", lower_name_of(kind)}, {"title", title_of(kind)}, {"place", place}});
  }
  return kinds;
}

Json activities_json() {
  Json activities = Json::array();
  for (const Activity each : kActivities) {
    activities.push_back({{"name", name_of(each)}, {"title", title_of(each)}});
  }
  return activities;
}

void replace(std::string& page, const std::string& mark, const std::string& text) {
  const std::size_t place = page.find(mark);
  FSDP_CHECK(place != std::string::npos, "the page has no place for {}", mark);
  page.replace(place, mark.size(), text);
}

}  // namespace

std::string to_page_json(const RunRecord& record) {
  const std::vector<std::string> units = units_of(record);
  Json json;
  json["title"] = record.title;
  json["world_size"] = record.world_size;
  json["virtual"] = record.cost_model.has_value();
  json["units"] = units;
  json["lanes"] = Json::array();
  const int lanes = lanes_of(record);
  for (int lane = 0; lane < lanes; ++lane) {
    json["lanes"].push_back(name_of(static_cast<Lane>(lane)));
  }
  json["activities"] = activities_json();
  json["kinds"] = kinds_json();
  json["ranks"] = Json::array();
  for (const RankRecord& rank : record.ranks) {
    json["ranks"].push_back(rank_json(record, rank, units));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_html(const RunRecord& record) {
  std::string data = to_page_json(record);
  // Inside a script element only "</" could end the data early; \u003c says the same in JSON.
  for (std::size_t p = data.find('<'); p != std::string::npos; p = data.find('<', p)) {
    data.replace(p, 1, "\\u003c");
  }
  std::string page(kPageHtml);
  // What is put in first is not searched again: the data comes last.
  replace(page, "{{title}}", escaped(record.title));
  replace(page, "{{css}}", palette_css() + std::string(kPageCss));
  replace(page, "{{js}}", std::string(kPageJs));
  replace(page, "{{data}}", data);
  return page;
}

}  // namespace fsdp::report
