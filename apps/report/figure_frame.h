/// @file
/// @ingroup report
/// What the figures have in common: a title, a time axis, a legend.
#pragma once

#include "report/figures.h"
#include "report/svg.h"
#include "report/timeline.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::report {

/// The place of things on a figure.
class FigureFrame {
 public:
  static constexpr Tenths kWidth = pixels(760);
  static constexpr Tenths kGutter = pixels(70);
  static constexpr Tenths kRight = pixels(16);
  static constexpr Tenths kHead = pixels(50);  ///< title, and the names of the phases
  static constexpr Tenths kFoot = pixels(66);  ///< time axis and legend

  FigureFrame(const RunRecord& record, const FigureOptions& options, Tenths content_height,
              std::size_t legend_entries);

  Svg& svg() { return svg_; }
  Tenths x(std::int64_t time) const;
  Tenths top() const { return kHead; }
  Tenths bottom() const { return bottom_; }
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }

  void time_axis(bool is_virtual);
  /// "forward", "backward", "optimizer" above the streams they stretch over.
  void phases(const std::vector<Span>& spans);
  /// Squares of a class, with names.
  void legend(const std::vector<std::pair<std::string_view, std::string_view>>& entries);

 private:
  static constexpr std::size_t kLegendColumns = 5;
  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t length_;
  Tenths bottom_;
  Svg svg_;
};

}  // namespace fsdp::report
