/// @file
/// @ingroup report
/// A run as still figures for the book: SVG files that stand alone. With a virtual clock the bytes
/// of a figure are the same every time, so that a test can tell whether it is up to date.
#pragma once

#include "report/run_record.h"

#include <cstdint>
#include <string>

namespace fsdp::report {

struct FigureOptions {
  std::string title{};   ///< empty: the record's
  std::size_t rank = 0;  ///< which of the record's ranks
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< 0: to the end of the record
  /// What the axes reach to, so that figures can be compared; 0: what is needed.
  std::int64_t length = 0;
  std::int64_t highest = 0;
};

/// The three streams of a rank.
std::string timeline_svg(const RunRecord& record, const FigureOptions& options);

/// Memory by category over time, with the peak.
std::string memory_svg(const RunRecord& record, const FigureOptions& options);

}  // namespace fsdp::report
