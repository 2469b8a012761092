#include "report/record_text.h"

#include "base/check.h"

#include <nlohmann/json.hpp>

#include <map>
#include <memory>

namespace fsdp::report {
namespace {

using Json = nlohmann::ordered_json;

Json fields_of(const Event& event) {
  return Json::array({event.kind, event.unit, event.name, event.phase, event.nbytes, event.sequence,
                      event.time, event.duration, event.ranks, event.ended});
}

Event event_from(const Json& fields) {
  Event event{.kind = fields.at(0), .unit = fields.at(1), .name = fields.at(2)};
  event.phase = fields.at(3);
  event.nbytes = fields.at(4);
  event.sequence = fields.at(5);
  event.time = fields.at(6);
  event.duration = fields.at(7);
  event.ranks = fields.at(8);
  event.ended = fields.at(9);
  return event;
}

/// Owners by number: many entries share one.
class Owners {
 public:
  int number_of(const std::shared_ptr<const Owner>& owner) {
    if (owner == nullptr) return -1;
    const auto [found, is_new] = numbers_.try_emplace(owner.get(), std::ssize(numbers_));
    if (is_new) names_.push_back(Json::array({owner->unit, owner->name}));
    return found->second;
  }
  const Json& names() const { return names_; }

 private:
  std::map<const Owner*, int> numbers_;
  Json names_ = Json::array();
};

std::vector<std::shared_ptr<const Owner>> owners_from(const Json& names) {
  std::vector<std::shared_ptr<const Owner>> owners;
  for (const Json& name : names)
    owners.push_back(std::make_shared<const Owner>(Owner{name.at(0), name.at(1)}));
  return owners;
}

RankRecord read(const Json& json) {
  RankRecord rank;
  rank.rank = json.at("rank");
  rank.end = json.at("end");
  rank.opening = json.at("opening");
  rank.peak.nbytes = json.at("peak");
  rank.host_peak.nbytes = json.at("host_peak");
  for (const Json& fields : json.at("events")) rank.events.push_back(event_from(fields));
  const auto owners = owners_from(json.at("owners"));
  for (const Json& fields : json.at("memory")) {
    const int owner = fields.at(4);
    rank.memory.push_back(
        {.what = fields.at(0),
         .block = fields.at(1),
         .kind = fields.at(2),
         .nbytes = fields.at(3),
         .owner = owner < 0 ? nullptr : owners.at(static_cast<std::size_t>(owner)),
         .time = fields.at(5)});
  }
  return rank;
}

}  // namespace

std::string to_text(const RankRecord& rank) {
  Json json;
  json["rank"] = rank.rank;
  json["end"] = rank.end;
  json["opening"] = rank.opening;
  json["peak"] = rank.peak.nbytes;
  json["host_peak"] = rank.host_peak.nbytes;
  json["events"] = Json::array();
  for (const Event& event : rank.events) json["events"].push_back(fields_of(event));
  Owners owners;
  json["memory"] = Json::array();
  for (const MemoryTracker::LogEntry& entry : rank.memory) {
    json["memory"].push_back(Json::array({entry.what, entry.block, entry.kind, entry.nbytes,
                                          owners.number_of(entry.owner), entry.time}));
  }
  json["owners"] = owners.names();
  return json.dump();
}

RankRecord from_text(const std::string& text) {
  try {
    return read(Json::parse(text));
  } catch (const std::exception& error) {
    fail("a rank's record cannot be read: {}", error.what());
  }
}

}  // namespace fsdp::report
