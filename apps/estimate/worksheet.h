/// @file
/// @ingroup estimate
/// The book's worksheet (writeup/worksheet.md): each formula beside what the engine measured.
#pragma once

#include "estimate/estimator_config.h"
#include "estimate/expression.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::estimate {

/// How a measured value stands to the one by hand.
enum class Relation { equal, at_least, at_most };

struct WorksheetLine {
  std::string name;                ///< what later formulas call it
  std::string what;                ///< "all parameters"
  std::string formula;             ///< as in the book, of earlier names
  double by_hand = 0;              ///< its value
  std::optional<double> measured;  ///< in a run of the engine; none: a step on the way
  Relation relation = Relation::equal;
  double slack = 0;  ///< equal: so much less was measured at most, where sizes are rounded down

  bool holds() const;
};

/// Lines of one unit.
struct WorksheetSection {
  std::string title;
  bool is_time = false;  ///< seconds, printed as microseconds; else elements or bytes
  std::vector<WorksheetLine> lines;
};

struct Worksheet {
  std::string title;
  std::vector<std::pair<std::string, double>> given;  ///< sizes, speeds: by name
  std::vector<WorksheetSection> sections;

  /// Every measured value stands to its formula as it should.
  bool holds() const;
};

/// Evaluates the formulas for a model that FSDP trains in float32, and runs the engine on the
/// device fake for each measurement: as configured, and with one change (DDP, a mesh, no_sync, …).
/// @throws InputError naming the key for a configuration that the formulas do not describe.
Worksheet make_worksheet(const EstimatorConfig& config);

/// The check that make_worksheet() begins with: float32, AdamW, FSDP as it is by default.
void check_described(const EstimatorConfig& config);

/// As a table of at most 100 columns.
std::string to_text(const Worksheet& worksheet);

}  // namespace fsdp::estimate
