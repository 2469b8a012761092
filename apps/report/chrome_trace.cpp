#include "report/chrome_trace.h"

#include "report/memory_curve.h"
#include "report/palette.h"
#include "report/timeline.h"

#include <nlohmann/json.hpp>

namespace fsdp::report {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(std::int64_t picoseconds) { return static_cast<double>(picoseconds) / 1e6; }

Json event(const char* phase, const std::string& name, int rank, int thread, std::int64_t time) {
  Json json;
  json["ph"] = phase;
  json["name"] = name;
  json["pid"] = rank;
  json["tid"] = thread;
  json["ts"] = microseconds(time);
  return json;
}

int thread_of(Lane lane) { return static_cast<int>(lane); }

void add_names(Json& events, const RankRecord& rank, int lanes) {
  const auto metadata = [&](const char* name, int thread, const char* key, const Json& value) {
    Json json;
    json["ph"] = "M";
    json["name"] = name;
    json["pid"] = rank.rank;
    json["tid"] = thread;
    json["args"][key] = value;
    events.push_back(std::move(json));
  };
  metadata("process_name", 0, "name", "rank " + std::to_string(rank.rank));
  metadata("process_sort_index", 0, "sort_index", rank.rank);
  for (int lane = 0; lane < lanes; ++lane) {
    metadata("thread_name", lane, "name", std::string(name_of(static_cast<Lane>(lane))));
    metadata("thread_sort_index", lane, "sort_index", lane);
  }
}

std::string title(const Span& span) {
  const std::string what(span.operation.empty() ? name_of(span.activity) : span.operation);
  const std::string text = span.activity == Activity::wait ? "wait for " + span.operation : what;
  return span.unit.empty() ? text : text + ' ' + span.unit;
}

void add_spans(Json& events, const RunRecord& record, const RankRecord& rank) {
  int flow = 0;
  for (const Span& span : spans_of(record, rank)) {
    Json bar = event("X", title(span), rank.rank, thread_of(span.lane), span.begin);
    bar["dur"] = microseconds(span.end - span.begin);
    bar["cat"] = name_of(span.activity);
    bar["args"]["unit"] = span.unit;
    if (span.lane == Lane::compute) {
      events.push_back(std::move(bar));
      continue;
    }
    bar["args"]["phase"] = name_of(span.phase);
    const bool is_copy = span.lane == Lane::copies;
    bar["args"][is_copy ? "bytes copied" : "bytes received"] = span.nbytes;
    if (!is_copy) bar["args"]["sequence"] = span.sequence;
    bar["args"]["issued"] = microseconds(span.issued);
    events.push_back(std::move(bar));
    // From the call, on the computing stream, to the transfer.
    const int id = rank.rank * 1000000 + flow++;
    Json from = event("s", "issued", rank.rank, thread_of(Lane::compute), span.issued);
    Json to = event("f", "issued", rank.rank, thread_of(span.lane), span.begin);
    for (Json* end : {&from, &to}) {
      (*end)["cat"] = "issue";
      (*end)["id"] = id;
    }
    to["bp"] = "e";
    events.push_back(std::move(from));
    events.push_back(std::move(to));
  }
}

void add_allocations(Json& events, const RankRecord& rank) {
  for (const Event& each : rank.events) {
    if (each.kind != EventKind::alloc && each.kind != EventKind::free) continue;
    Json json = event("i", to_string(each), rank.rank, thread_of(Lane::compute), each.time);
    json["s"] = "t";
    json["cat"] = "memory";
    json["args"]["bytes"] = each.nbytes;
    json["args"]["unit"] = each.unit;
    events.push_back(std::move(json));
  }
}

void add_memory(Json& events, const RankRecord& rank) {
  for (const MemoryPoint& point : memory_curve(rank)) {
    Json json = event("C", "memory (bytes)", rank.rank, 0, point.time);
    for (const MemoryKind kind : kStack) {
      json["args"][std::string(lower_name_of(kind))] = point.bytes[kind];
    }
    events.push_back(std::move(json));
  }
}

}  // namespace

std::string to_chrome_json(const RunRecord& record) {
  Json events = Json::array();
  for (const RankRecord& rank : record.ranks) {
    add_names(events, rank, lanes_of(record));
    add_spans(events, record, rank);
    add_allocations(events, rank);
    add_memory(events, rank);
  }
  Json json;
  json["displayTimeUnit"] = "ns";
  json["otherData"]["generator"] = "made by unshard";
  json["otherData"]["title"] = record.title;
  json["otherData"]["clock"] = record.cost_model ? "virtual" : "monotonic";
  json["traceEvents"] = std::move(events);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace fsdp::report
