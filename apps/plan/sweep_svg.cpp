// The picture of a sweep: the peak by category as stacked bars, and the step time below them.
#include "plan/quantity.h"
#include "plan/sweep.h"
#include "report/palette.h"
#include "report/svg.h"
#include "report/units.h"

#include <algorithm>
#include <string>

namespace fsdp::plan {

using report::Anchor;
using report::pixels;
using report::Svg;
using report::Tenths;

namespace {

constexpr Tenths kWidth = pixels(760), kLeft = pixels(70), kRight = pixels(16);
constexpr Tenths kHead = pixels(36), kBars = pixels(240), kTimes = pixels(120);
constexpr Tenths kBetween = pixels(34), kLabels = pixels(34), kLegendRow = pixels(18);
constexpr std::size_t kLegendColumns = 4;

/// A panel with an axis on its left, from 0 to `highest`.
class Panel {
 public:
  Panel(Svg& svg, Tenths top, Tenths height, std::int64_t highest, const report::Unit& unit,
        const std::string& title)
      : svg_(svg),
        bottom_(top + height),
        height_(height),
        highest_(std::max<std::int64_t>(highest, 1)) {
    const std::int64_t step = report::tick_step(highest_, 5);
    for (std::int64_t tick = 0; tick <= highest_; tick += step) {
      svg.line(kLeft, y(tick), kWidth - kRight, y(tick), "grid");
      svg.text(kLeft - pixels(6), y(tick) + pixels(4), report::in_unit(tick, unit, 2), Anchor::end);
    }
    svg.line(kLeft, bottom_, kWidth - kRight, bottom_, "axis");
    svg.text(kLeft, top - pixels(6), title, Anchor::start, "ink");
  }
  Tenths y(std::int64_t value) const {
    // Only the leading digits count: the product must fit 64 bits.
    std::int64_t scale = 1;
    while (highest_ / scale > 1'000'000'000'000) scale *= 10;
    return bottom_ - value / scale * height_ / std::max<std::int64_t>(highest_ / scale, 1);
  }
  void bar(Tenths x, Tenths width, std::int64_t from, std::int64_t to, std::string_view css_class,
           const std::string& tip) {
    svg_.rect(x, y(to), width, y(from) - y(to), css_class, tip);
  }
  Tenths bottom() const { return bottom_; }

 private:
  Svg& svg_;
  Tenths bottom_;
  Tenths height_;
  std::int64_t highest_;
};

constexpr const char* kBeside = "not in use";  // kept by the allocator, or outside of it

std::string label_of(const Sweep& sweep, const SweepPoint& point) {
  std::string label;
  for (std::size_t i = 0; i < sweep.axes.size(); ++i) {
    label += (i == 0 ? "" : " / ") + sweep.axes[i].label(point.values[i]);
  }
  return label;
}

std::string axes_of(const Sweep& sweep) {
  std::string text;
  for (const SweepAxis& axis : sweep.axes) text += (text.empty() ? "" : " / ") + axis.key;
  return text;
}

}  // namespace

std::string sweep_svg(const Sweep& sweep) {
  std::int64_t most_memory = 0, most_time = 0;
  for (const SweepPoint& point : sweep.points) {
    most_memory = std::max(most_memory, point.outcome.memory());
    most_time = std::max(most_time, point.outcome.step());
  }
  const Tenths times_top = kHead + pixels(20) + kBars + kBetween;
  const Tenths legend_top = times_top + kTimes + kLabels;
  const bool has_beside = std::ranges::any_of(
      sweep.points, [](const SweepPoint& point) { return point.outcome.beside > 0; });
  const std::size_t entries = kMemoryKinds + (has_beside ? 1 : 0);
  const auto rows = static_cast<Tenths>((entries + kLegendColumns - 1) / kLegendColumns);
  const std::string title = sweep.model_name + ": memory and step time over " + axes_of(sweep);
  Svg svg(kWidth, legend_top + rows * kLegendRow + pixels(10), title,
          report::palette_css() + ".time{fill:#7a7a7a}\n");
  svg.text(kLeft, pixels(18), title, Anchor::start, "head");
  Panel memory(svg, kHead + pixels(20), kBars, most_memory, report::byte_unit(most_memory),
               "peak of the device");
  Panel times(svg, times_top, kTimes, most_time, report::time_unit(most_time), "time of a step");

  const auto count = static_cast<Tenths>(sweep.points.size());
  const Tenths place = (kWidth - kLeft - kRight) / count;
  for (Tenths i = 0; i < count; ++i) {
    const SweepPoint& point = sweep.points[static_cast<std::size_t>(i)];
    const Tenths left = kLeft + i * place + place / 6, width = place * 2 / 3;
    std::int64_t below = 0;
    for (const MemoryKind kind : report::kStack) {
      const std::int64_t nbytes = point.outcome.device[kind];
      if (nbytes == 0) continue;
      memory.bar(left, width, below, below + nbytes, lower_name_of(kind),
                 std::string(report::title_of(kind)) + ", " + show_memory(nbytes));
      below += nbytes;
    }
    if (const std::int64_t beside = point.outcome.beside; beside > 0) {
      memory.bar(left, width, below, below + beside, "time",
                 std::string(kBeside) + ", " + show_memory(beside));
    }
    times.bar(left, width, 0, point.outcome.step(), "time", show_time(point.outcome.step()));
    svg.text(left + width / 2, times.bottom() + pixels(14), label_of(sweep, point), Anchor::middle);
  }
  svg.text((kLeft + kWidth - kRight) / 2, times.bottom() + pixels(28), axes_of(sweep),
           Anchor::middle);
  constexpr Tenths kColumn = (kWidth - kLeft - kRight) / static_cast<Tenths>(kLegendColumns);
  for (std::size_t i = 0; i < entries; ++i) {
    const bool is_kind = i < report::kStack.size();
    const Tenths left = kLeft + kColumn * static_cast<Tenths>(i % kLegendColumns);
    const Tenths top = legend_top + kLegendRow * static_cast<Tenths>(i / kLegendColumns);
    svg.rect(left, top, pixels(11), pixels(11), is_kind ? lower_name_of(report::kStack[i]) : "time",
             {}, pixels(2));
    svg.text(left + pixels(16), top + pixels(10),
             is_kind ? std::string(report::title_of(report::kStack[i])) : kBeside, Anchor::start);
  }
  return svg.finish();
}

}  // namespace fsdp::plan
