#include "report/figures.h"

#include "base/check.h"
#include "report/figure_frame.h"
#include "report/memory_curve.h"
#include "report/palette.h"
#include "report/units.h"

#include <algorithm>
#include <utility>

namespace fsdp::report {
namespace {

constexpr Tenths kLane = pixels(26);
constexpr Tenths kBetweenLanes = pixels(5);
constexpr Tenths kMemory = pixels(190);

/// "model.layers.0", "layers.0", "0": the longest that fits.
std::string fitting_name(const std::string& unit, Tenths width) {
  const std::string middle = unit.starts_with("model.") ? unit.substr(6) : unit;
  const std::size_t dot = middle.rfind('.');
  for (const std::string& name :
       {middle, dot == std::string::npos ? middle : middle.substr(dot + 1)}) {
    if (width_of(name) + pixels(4) <= width) return name;
  }
  return {};
}

std::string tip_of(const Span& span) {
  std::string text(span.operation.empty() ? title_of(span.activity) : span.operation);
  if (span.activity == Activity::wait) text = "waiting for " + span.operation;
  if (!span.unit.empty()) text += " of " + span.unit;
  const Unit unit = time_unit(span.end - span.begin);
  text += ", " + in_unit(span.end - span.begin, unit, 3);
  const std::string_view what = span.activity == Activity::copy ? " B copied" : " B received";
  if (span.nbytes > 0) text += ", " + grouped(span.nbytes) + std::string(what);
  return text;
}

void draw_span(FigureFrame& frame, const Span& span, Tenths top) {
  const Tenths left = frame.x(span.begin);
  const Tenths width = std::max(frame.x(span.end) - left, Tenths{10});
  // A hair's breadth between neighbors.
  const Tenths drawn = width > pixels(4) ? width - 8 : width;
  frame.svg().rect(left, top + pixels(2), drawn, kLane - pixels(4), name_of(span.activity),
                   tip_of(span), width > pixels(8) ? pixels(3) : 0);
  if (span.activity == Activity::wait) return;
  const std::string label =
      span.unit.empty() ? std::string(name_of(span.activity)) : fitting_name(span.unit, width);
  if (label.empty() || width_of(label) > width) return;
  frame.svg().text(left + drawn / 2, top + pixels(17), label, Anchor::middle,
                   "on-" + std::string(name_of(span.activity)));
}

std::vector<std::pair<std::string_view, std::string_view>> activities_in(
    const std::vector<Span>& spans) {
  std::vector<std::pair<std::string_view, std::string_view>> entries;
  for (const Activity activity : kActivities) {
    if (std::any_of(spans.begin(), spans.end(),
                    [&](const Span& span) { return span.activity == activity; })) {
      entries.emplace_back(name_of(activity), title_of(activity));
    }
  }
  return entries;
}

}  // namespace

std::string timeline_svg(const RunRecord& record, const FigureOptions& options) {
  const RankRecord& rank = record.ranks.at(options.rank);
  const std::int64_t end = options.end != 0 ? options.end : rank.end;
  std::vector<Span> spans = spans_of(record, rank);
  std::erase_if(spans,
                [&](const Span& span) { return span.end <= options.begin || span.begin >= end; });
  const auto legend = activities_in(spans);
  std::array<Tenths, kLanes> tops{};
  std::array<bool, kLanes> is_used{};
  Tenths height = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    int rows = 0;
    for (const Span& span : spans) {
      if (span.lane == static_cast<Lane>(lane)) rows = std::max(rows, span.depth + 1);
    }
    is_used.at(lane) = rows > 0;
    tops.at(lane) = FigureFrame::kHead + height;
    if (rows > 0) height += rows * kLane + kBetweenLanes;
  }

  FigureFrame frame(record, options, height, legend.size());
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (!is_used.at(lane)) continue;
    const Tenths bottom = lane + 1 < kLanes ? tops.at(lane + 1) : FigureFrame::kHead + height;
    frame.svg().rect(FigureFrame::kGutter, tops.at(lane),
                     FigureFrame::kWidth - FigureFrame::kGutter - FigureFrame::kRight,
                     bottom - tops.at(lane) - kBetweenLanes, "lane");
    frame.svg().text(FigureFrame::kGutter - pixels(8), tops.at(lane) + pixels(17),
                     name_of(static_cast<Lane>(lane)), Anchor::end, "ink");
  }
  frame.time_axis(record.cost_model.has_value());
  frame.phases(spans);
  for (const Span& span : spans) {
    const Tenths top = tops.at(static_cast<std::size_t>(span.lane)) + span.depth * kLane;
    draw_span(frame, span, top);
  }
  frame.legend(legend);
  return frame.svg().finish();
}

namespace {

/// A stacked area: the steps of the upper edge there, those of the lower one back.
std::string area(const FigureFrame& frame, const std::vector<MemoryPoint>& points,
                 const std::vector<Tenths>& lower, const std::vector<Tenths>& upper) {
  std::string there;
  std::string back;
  for (std::size_t i = 0, next = 0; i < points.size(); i = next) {
    for (next = i + 1; next < points.size(); ++next) {
      if (upper[next] != upper[i] || lower[next] != lower[i]) break;
    }
    const std::string begin = to_text(frame.x(points[i].time));
    const std::string end =
        to_text(frame.x(next < points.size() ? points[next].time : frame.end()));
    there += (i == 0 ? 'M' : 'L') + begin + ',' + to_text(upper[i]) + 'H' + end;
    back.insert(0, 'L' + end + ',' + to_text(lower[i]) + 'H' + begin);
  }
  return there + back + 'Z';
}

void draw_stack(FigureFrame& frame, const std::vector<MemoryPoint>& points, std::int64_t highest) {
  const auto y = [&](std::int64_t nbytes) {
    return frame.bottom() - nbytes * (kMemory - pixels(14)) / highest;
  };
  std::vector<std::int64_t> sums(points.size());
  for (const MemoryKind kind : kStack) {
    std::vector<Tenths> lower;
    std::vector<Tenths> upper;
    bool is_held = false;
    for (std::size_t i = 0; i < points.size(); ++i) {
      lower.push_back(y(sums[i]));
      sums[i] += points[i].bytes[kind];
      upper.push_back(y(sums[i]));
      is_held = is_held || points[i].bytes[kind] > 0;
    }
    if (is_held) frame.svg().path(area(frame, points, lower, upper), lower_name_of(kind));
  }
}

void draw_byte_axis(FigureFrame& frame, std::int64_t highest) {
  const Unit unit = byte_unit(highest);
  const std::int64_t step = tick_step(highest, 5);
  for (std::int64_t tick = 0; tick <= highest; tick += step) {
    const Tenths at = frame.bottom() - tick * (kMemory - pixels(14)) / highest;
    frame.svg().line(FigureFrame::kGutter, at, FigureFrame::kWidth - FigureFrame::kRight, at,
                     "grid");
    frame.svg().text(FigureFrame::kGutter - pixels(8), at + pixels(4),
                     tick == 0 ? "0" : in_unit(tick, unit, 2), Anchor::end);
  }
}

void draw_peak(FigureFrame& frame, std::int64_t peak, std::int64_t highest) {
  const Tenths at = frame.bottom() - peak * (kMemory - pixels(14)) / highest;
  frame.svg().line(FigureFrame::kGutter, at, FigureFrame::kWidth - FigureFrame::kRight, at, "peak");
  frame.svg().text(FigureFrame::kWidth - FigureFrame::kRight - pixels(2), at - pixels(4),
                   "peak " + grouped(peak) + " B", Anchor::end, "ink");
}

}  // namespace

std::string memory_svg(const RunRecord& record, const FigureOptions& options) {
  const RankRecord& rank = record.ranks.at(options.rank);
  std::vector<MemoryPoint> points = memory_curve(rank);
  // Moments closer than half a pixel are one; its highest point stays.
  const std::int64_t grain = std::max(std::int64_t{1}, std::max(rank.end, options.length) / 1500);
  for (MemoryPoint& point : points) point.time -= point.time % grain;
  points = thinned(points);
  std::vector<std::pair<std::string_view, std::string_view>> legend;
  for (const MemoryKind kind : kStack) {
    if (std::any_of(points.begin(), points.end(),
                    [&](const MemoryPoint& point) { return point.bytes[kind] > 0; })) {
      legend.emplace_back(lower_name_of(kind), title_of(kind));
    }
  }
  const std::int64_t highest = std::max({std::int64_t{1}, options.highest, rank.peak.total()});

  FigureFrame frame(record, options, kMemory, legend.size());
  frame.time_axis(record.cost_model.has_value());
  draw_byte_axis(frame, highest);
  frame.phases(spans_of(record, rank));
  draw_stack(frame, points, highest);
  draw_peak(frame, rank.peak.total(), highest);
  frame.legend(legend);
  return frame.svg().finish();
}

}  // namespace fsdp::report
