#include "base/trace.h"

#include "base/check.h"

#include <algorithm>

namespace fsdp {

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::none:
      return "none";
    case Phase::init:
      return "init";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::gradient:
      return "gradient";
    case Phase::optimizer:
      return "optimizer";
    case Phase::loss:
      return "loss";
    case Phase::checkpoint:
      return "checkpoint";
  }
  fail("unknown phase number {}", static_cast<int>(phase));
}

std::string_view name_of(EventKind kind) {
  switch (kind) {
    case EventKind::issue:
      return "issue";
    case EventKind::wait:
      return "wait";
    case EventKind::alloc:
      return "alloc";
    case EventKind::free:
      return "free";
    case EventKind::forward_begin:
      return "forward_begin";
    case EventKind::forward_end:
      return "forward_end";
    case EventKind::backward_begin:
      return "backward_begin";
    case EventKind::backward_end:
      return "backward_end";
    case EventKind::step:
      return "step";
  }
  fail("unknown event kind number {}", static_cast<int>(kind));
}

namespace {
std::string label_text(std::string_view unit, Phase phase) {
  std::string text{unit};
  if (phase != Phase::none) {
    if (!text.empty()) text += '/';
    text += name_of(phase);
  }
  return text;
}
}  // namespace

std::string to_string(const Label& label) { return label_text(label.unit, label.phase); }

std::string to_string(const Event& event) {
  std::string text{name_of(event.kind)};
  if (!event.name.empty()) text += ' ' + event.name;
  const std::string label = label_text(event.unit, event.phase);
  if (!label.empty()) text += ' ' + label;
  return text;
}

void Trace::record(Event event) {
  if (recording_) events_.push_back(std::move(event));
}

std::vector<std::string> Trace::lines(const std::vector<EventKind>& kinds) const {
  std::vector<std::string> lines;
  for (const Event& event : events_) {
    const bool wanted =
        kinds.empty() || std::find(kinds.begin(), kinds.end(), event.kind) != kinds.end();
    if (wanted) lines.push_back(to_string(event));
  }
  return lines;
}

}  // namespace fsdp
