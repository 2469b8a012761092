#include "report/figure_frame.h"

#include "base/check.h"
#include "report/palette.h"
#include "report/units.h"

#include <algorithm>

namespace fsdp::report {
namespace {

constexpr Tenths kLegendRow = pixels(18);

std::string heading(const RunRecord& record, const FigureOptions& options) {
  return options.title.empty() ? record.title : options.title;
}

}  // namespace

FigureFrame::FigureFrame(const RunRecord& record, const FigureOptions& options,
                         Tenths content_height, std::size_t legend_entries)
    : begin_(options.begin),
      end_(options.end != 0 ? options.end : record.ranks.at(options.rank).end),
      length_(std::max({std::int64_t{1}, end_ - begin_, options.length})),
      bottom_(kHead + content_height),
      svg_(kWidth,
           bottom_ + kFoot +
               kLegendRow * static_cast<Tenths>((std::max(legend_entries, std::size_t{1}) - 1) /
                                                kLegendColumns),
           heading(record, options), palette_css() + ".wait{fill:url(#hatch)}\n") {
  svg_.text(kGutter, pixels(18), heading(record, options), Anchor::start, "head");
}

Tenths FigureFrame::x(std::int64_t time) const {
  const std::int64_t inside = std::clamp(time, begin_, begin_ + length_) - begin_;
  // Of long times only the leading digits count: the product must fit 64 bits.
  std::int64_t scale = 1;
  while (length_ / scale > 1'000'000'000'000) scale *= 10;
  return kGutter + inside / scale * (kWidth - kGutter - kRight) / (length_ / scale);
}

void FigureFrame::time_axis(bool is_virtual) {
  const std::int64_t step = tick_step(length_, 8);
  const Unit unit = time_unit(length_);
  // Times are told from the beginning of the figure.
  for (std::int64_t tick = 0; tick <= length_; tick += step) {
    const Tenths at = x(begin_ + tick);
    svg_.line(at, top() - pixels(2), at, bottom(), "grid");
    std::string number = in_unit(tick, unit, 3);
    number.resize(number.find(' '));
    svg_.text(at, bottom() + pixels(14), number, Anchor::middle);
  }
  svg_.line(kGutter, bottom(), kWidth - kRight, bottom(), "axis");
  svg_.text((kGutter + kWidth - kRight) / 2, bottom() + pixels(30),
            "time (" + std::string(unit.name) + (is_virtual ? ", virtual clock)" : ", measured)"),
            Anchor::middle);
}

void FigureFrame::phases(const std::vector<Span>& spans) {
  struct Stretch {
    Activity activity;
    std::int64_t begin;
    std::int64_t end;
  };
  std::vector<Stretch> stretches;
  for (const Span& span : spans) {
    if (span.lane != Lane::compute || span.activity == Activity::wait) continue;
    if (span.end <= begin_ || span.begin >= end_) continue;
    if (!stretches.empty() && stretches.back().activity == span.activity) {
      stretches.back().end = std::max(stretches.back().end, span.end);
    } else {
      stretches.push_back({span.activity, span.begin, span.end});
    }
  }
  for (const Stretch& stretch : stretches) {
    const Tenths left = x(stretch.begin);
    const Tenths right = x(stretch.end);
    svg_.line(left + 10, top() - pixels(6), right - 10, top() - pixels(6), "bracket");
    const std::string_view name = name_of(stretch.activity);
    const bool is_last = &stretch == &stretches.back();
    const bool fits = width_of(name) <= right - left;
    if (fits || is_last) {
      svg_.text(fits ? (left + right) / 2 : right, top() - pixels(11), name,
                fits ? Anchor::middle : Anchor::end);
    }
  }
}

void FigureFrame::legend(
    const std::vector<std::pair<std::string_view, std::string_view>>& entries) {
  constexpr Tenths kColumn = (kWidth - kGutter - kRight) / static_cast<Tenths>(kLegendColumns);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Tenths left = kGutter + kColumn * static_cast<Tenths>(i % kLegendColumns);
    const Tenths y = bottom() + pixels(44) + kLegendRow * static_cast<Tenths>(i / kLegendColumns);
    svg_.rect(left, y, pixels(11), pixels(11), entries[i].first, {}, pixels(2));
    svg_.text(left + pixels(16), y + pixels(10), entries[i].second, Anchor::start);
  }
}

}  // namespace fsdp::report
