#include "report/timeline.h"

#include "base/check.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace fsdp::report {

std::string_view name_of(Lane lane) {
  static constexpr std::array<std::string_view, kLanes> kNames{"gathers", "compute", "reduces",
                                                               "copies"};
  return kNames.at(static_cast<std::size_t>(lane));
}

std::string_view name_of(Activity activity) {
  static constexpr std::array<std::string_view, 8> kNames{"forward", "backward", "wait",  "step",
                                                          "gather",  "reduce",   "other", "copy"};
  return kNames.at(static_cast<std::size_t>(activity));
}

namespace {

Activity activity_of(const std::string& operation) {
  if (operation == "all_gather") return Activity::gather;
  if (operation.starts_with("copy_to_")) return Activity::copy;
  if (operation == "broadcast" || operation == "barrier") return Activity::other;
  return Activity::reduce;
}

Lane lane_of(Activity transfer) {
  if (transfer == Activity::copy) return Lane::copies;
  return transfer == Activity::gather ? Lane::gathers : Lane::reduces;
}

/// Reads the events of a rank once, in order.
class Reader {
 public:
  Reader(const RunRecord& record, const RankRecord& rank) : rank_(rank) {
    if (record.cost_model) channel_.emplace(*record.cost_model);
  }

  std::vector<Span> read() {
    for (const Event& event : rank_.events) take(event);
    if (!channel_) queue_up();
    std::erase_if(spans_, [](const Span& span) { return span.end < span.begin; });
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
    });
    nest();
    return std::move(spans_);
  }

 private:
  void take(const Event& event) {
    switch (event.kind) {
      case EventKind::forward_begin:
        return open(Activity::forward, event);
      case EventKind::backward_begin:
        return open(Activity::backward, event);
      case EventKind::forward_end:
        return close(Activity::forward, event);
      case EventKind::backward_end:
        return close(Activity::backward, event);
      case EventKind::issue:
        return issue(event);
      case EventKind::wait:
        return wait(event);
      case EventKind::step:
        spans_.push_back(
            {.lane = Lane::compute, .activity = Activity::step, .unit = {}, .operation = {}});
        spans_.back().begin = event.time - event.duration;
        spans_.back().end = event.time;
        return;
      case EventKind::alloc:
      case EventKind::free:
        return;
    }
  }

  void open(Activity activity, const Event& event) {
    open_.push_back(spans_.size());
    // It lasts to the end of the record unless something ends it.
    spans_.push_back(
        {.lane = Lane::compute, .activity = activity, .unit = event.unit, .operation = {}});
    spans_.back().begin = event.time;
    spans_.back().end = rank_.end;
  }

  void close(Activity activity, const Event& event) {
    const auto innermost = std::find_if(open_.rbegin(), open_.rend(), [&](std::size_t i) {
      return spans_[i].activity == activity && spans_[i].unit == event.unit;
    });
    if (innermost == open_.rend()) return;  // begun before the record was
    spans_[*innermost].end = event.time;
    open_.erase(std::next(innermost).base());
  }

  void issue(const Event& event) {
    const Activity activity = activity_of(event.name);
    Span span{.lane = lane_of(activity),
              .activity = activity,
              .unit = event.unit,
              .operation = event.name,
              .phase = event.phase};
    span.issued = span.begin = event.time;
    span.end = rank_.end;
    span.nbytes = event.nbytes;
    span.sequence = event.sequence;
    if (channel_) {  // exactly what the clock of the run did
      channel_->wait_until(event.time);
      if (activity == Activity::copy) {
        span.begin = std::max(event.time, channel_->bus_free());
        span.end = channel_->start_copy(event.nbytes);
      } else {
        span.begin = std::max({event.time, channel_->channel_free(event.is_far), event.ready});
        span.end = channel_->start_collective(event.ranks, event.nbytes, event.is_far, event.ready);
      }
    } else if (activity == Activity::copy) {
      span.end = event.time;  // at the latest where it is waited for, and not all are
    }
    spans_.push_back(std::move(span));
  }

  void wait(const Event& event) {
    const auto issued = std::find_if(spans_.begin(), spans_.end(), [&](const Span& span) {
      return span.waited < 0 && span.sequence == event.sequence && span.operation == event.name &&
             span.unit == event.unit && span.phase == event.phase;
    });
    if (issued != spans_.end()) {
      issued->waited = event.time;
      if (!channel_) issued->end = event.ended >= 0 ? event.ended : event.time;
    }
    if (event.duration <= 0) return;
    spans_.push_back({.lane = Lane::compute,
                      .activity = Activity::wait,
                      .unit = event.unit,
                      .operation = event.name,
                      .phase = event.phase});
    spans_.back().begin = event.time - event.duration;
    spans_.back().end = event.time;
  }

  /// Without a clock: what was issued later is transferred later.
  void queue_up() {
    std::array<std::int64_t, kLanes> free_at{};
    for (Span& span : spans_) {
      if (span.lane == Lane::compute) continue;
      std::int64_t& free = free_at.at(static_cast<std::size_t>(span.lane));
      span.begin = std::max(span.begin, free);
      span.end = std::max(span.begin, span.end);
      free = span.end;
    }
  }

  void nest() {
    std::array<std::vector<std::int64_t>, kLanes> ends;
    for (Span& span : spans_) {
      auto& around = ends.at(static_cast<std::size_t>(span.lane));
      while (!around.empty() && around.back() <= span.begin) around.pop_back();
      span.depth = static_cast<int>(around.size());
      around.push_back(span.end);
    }
  }

  const RankRecord& rank_;
  std::optional<VirtualClock> channel_;
  std::vector<Span> spans_;
  std::vector<std::size_t> open_;  // of spans_: begun and not ended
};

}  // namespace

int lanes_of(const RunRecord& record) {
  for (const RankRecord& rank : record.ranks) {
    const auto is_copy = [](const Event& event) {
      return event.kind == EventKind::issue && activity_of(event.name) == Activity::copy;
    };
    if (std::ranges::any_of(rank.events, is_copy)) return kLanes;
  }
  return kLanes - 1;
}

std::vector<Span> spans_of(const RunRecord& record, const RankRecord& rank) {
  return Reader(record, rank).read();
}

}  // namespace fsdp::report
