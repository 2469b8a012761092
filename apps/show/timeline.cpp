#include "show/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>

namespace fsdp::show {
namespace {

bool is_compute(const Event& event) {
  return event.kind == EventKind::forward_begin || event.kind == EventKind::forward_end ||
         event.kind == EventKind::backward_begin || event.kind == EventKind::backward_end;
}

char letter_of(const Event& event) {
  const bool parameters = event.name == "unsharded_param";
  const bool gradients = event.name == "unsharded_grad";
  const bool gather = event.name == "all_gather";
  const bool reduction = event.name == "reduce_scatter";
  switch (event.kind) {
    case EventKind::alloc:
      return parameters ? 'a' : gradients ? 'A' : '\0';
    case EventKind::free:
      return parameters ? 'f' : gradients ? 'F' : '\0';
    case EventKind::issue:
      return gather ? 'g' : reduction ? 'r' : '\0';
    case EventKind::wait:
      return gather ? 'w' : reduction ? 'W' : '\0';
    default:
      return is_compute(event) ? '=' : '\0';
  }
}

/// The row of one unit while it is drawn.
struct Row {
  std::string unit;
  std::string cells;
};

}  // namespace

std::vector<std::string> rows(const std::vector<Event>& events, std::size_t first) {
  std::map<std::string, int> held;  // storages of each unit that are allocated
  std::vector<Row> rows;
  std::size_t columns = 0;
  std::size_t width = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    const char letter = letter_of(event);
    if (letter == 0) continue;
    const bool held_before = held[event.unit] > 0;
    if (letter == 'a' || letter == 'A') ++held[event.unit];
    if (letter == 'f' || letter == 'F') --held[event.unit];
    if (i < first) continue;
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const Row& each) { return each.unit == event.unit; });
    if (row == rows.end()) {
      rows.push_back({event.unit, std::string(columns, held_before ? '.' : ' ')});
      row = rows.end() - 1;
    }
    for (Row& each : rows) each.cells += held[each.unit] > 0 ? '.' : ' ';
    row->cells.back() = letter;
    ++columns;
    width = std::max(width, event.unit.size());
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    const std::size_t end = row.cells.find_last_not_of(' ') + 1;
    lines.push_back(fmt::format("  {:{}}  {}", row.unit, width, row.cells.substr(0, end)));
  }
  return lines;
}

std::int64_t most_nbytes(const std::vector<Event>& events, std::string_view kind) {
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const Event& event : events) {
    if (event.name != kind) continue;
    if (event.kind == EventKind::alloc) held += event.nbytes;
    if (event.kind == EventKind::free) held -= event.nbytes;
    most = std::max(most, held);
  }
  return most;
}

int hidden_gathers(const std::vector<Event>& events) {
  std::map<std::string, bool> in_flight;  // by unit: whether another unit has computed meanwhile
  int hidden = 0;
  for (const Event& event : events) {
    if (is_compute(event)) {
      for (auto& [unit, computed] : in_flight) computed = true;
    }
    if (event.name != "all_gather") continue;
    if (event.kind == EventKind::issue) in_flight[event.unit] = false;
    if (event.kind == EventKind::wait && in_flight[event.unit]) ++hidden;
    if (event.kind == EventKind::wait) in_flight.erase(event.unit);
  }
  return hidden;
}

}  // namespace fsdp::show
