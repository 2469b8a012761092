#include "report/run_record.h"

#include <algorithm>
#include <set>

namespace fsdp::report {
namespace {

constexpr std::int64_t kPicosecondsPerNanosecond = 1000;

}  // namespace

RankRecorder::RankRecorder(Context& context) : context_(context) {
  context_.trace().clear();
  context_.trace().set_recording(true);
  context_.tracker().set_logging(false);  // whatever ran before: ours is a log of its own
  context_.tracker().set_logging(true);
  context_.tracker().reset_peak();
  context_.host_tracker().reset_peak();
  opening_ = context_.tracker().log().size();
  begin_ = context_.now();
}

RankRecorder::~RankRecorder() { stop(); }

void RankRecorder::stop() {
  context_.trace().set_recording(false);
  context_.tracker().set_logging(false);
}

RankRecord RankRecorder::finish() {
  const std::int64_t end = context_.now();
  stop();
  const std::int64_t unit = context_.clock() != nullptr ? 1 : kPicosecondsPerNanosecond;
  RankRecord record;
  record.rank = context_.rank();
  record.end = unit * (end - begin_);
  record.events = context_.trace().events();
  for (Event& event : record.events) {
    event.time = unit * (event.time - begin_);
    event.duration *= unit;
    if (event.ready > 0) event.ready = std::max(std::int64_t{0}, event.ready - begin_);
    if (event.ended >= 0) event.ended = unit * std::max(std::int64_t{0}, event.ended - begin_);
  }
  record.memory = context_.tracker().log();
  for (MemoryTracker::LogEntry& entry : record.memory) {
    entry.time = unit * std::max(std::int64_t{0}, entry.time - begin_);
  }
  record.opening = opening_;
  record.peak = context_.tracker().peak();
  record.host_peak = context_.host_tracker().peak();
  return record;
}

void record_rank(RunRecord& record, const std::function<void()>& body) {
  RankRecord& place = record.ranks.at(static_cast<std::size_t>(Context::current().rank()));
  RankRecorder recorder(Context::current());
  body();
  place = recorder.finish();
}

std::vector<std::string> units_of(const RunRecord& record) {
  std::vector<std::string> units;
  std::set<std::string> seen{""};
  const auto add = [&](const std::string& unit) {
    if (seen.insert(unit).second) units.push_back(unit);
  };
  for (const RankRecord& rank : record.ranks) {
    for (const Event& event : rank.events) {
      if (event.kind == EventKind::forward_begin) add(event.unit);
    }
  }
  for (const RankRecord& rank : record.ranks) {
    for (const Event& event : rank.events) add(event.unit);
    for (const MemoryTracker::LogEntry& entry : rank.memory) {
      if (entry.owner != nullptr) add(entry.owner->unit);
    }
  }
  return units;
}

std::string unit_of(const Owner* owner, const std::vector<std::string>& units) {
  if (owner == nullptr) return {};
  if (!owner->unit.empty()) return owner->unit;
  std::string best;
  for (const std::string& unit : units) {
    const bool leads = owner->name == unit || owner->name.starts_with(unit + ".");
    if (leads && unit.size() > best.size()) best = unit;
  }
  return best;
}

}  // namespace fsdp::report
