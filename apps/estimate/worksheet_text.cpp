// A worksheet as text, and whether it holds.
#include "estimate/text_table.h"
#include "estimate/worksheet.h"
#include "report/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdp::estimate {
namespace {

constexpr std::size_t kColumns = 100;
constexpr double kMicrosecond = 1e-6;

std::string show(double value, bool is_time) {
  if (is_time) return fmt::format("{:.3f}", value / kMicrosecond);
  return report::grouped(std::llround(value));
}

std::string measured(const WorksheetLine& line, bool is_time) {
  if (!line.measured) return "";
  const std::string value = show(*line.measured, is_time);
  if (!line.holds()) return "DIFFERENT: " + value;
  const bool is_equal = line.relation == Relation::equal && value == show(line.by_hand, is_time);
  return is_equal ? "equal" : value;
}

std::string describe_given(const Worksheet& worksheet) {
  std::string text = "Given:";
  std::size_t column = text.size();
  for (const auto& [name, value] : worksheet.given) {
    const bool is_whole = value == std::floor(value) && value < 1e12;
    const std::string one =
        fmt::format(" {} = {},", name,
                    is_whole ? report::grouped(std::llround(value)) : fmt::format("{:g}", value));
    if (column + one.size() > kColumns) {
      text += "\n      ";
      column = 6;
    }
    text += one;
    column += one.size();
  }
  text.back() = '\n';
  return text;
}

}  // namespace

bool WorksheetLine::holds() const {
  if (!measured) return true;
  if (relation == Relation::at_least) return *measured >= by_hand;
  if (relation == Relation::at_most) return *measured <= by_hand;
  constexpr double kNanosecond = 1e-9;  // elements and bytes are whole
  const double missing = by_hand - *measured;
  return missing >= -kNanosecond && missing <= slack + kNanosecond;
}

bool Worksheet::holds() const {
  return std::ranges::all_of(sections, [](const WorksheetSection& section) {
    return std::ranges::all_of(section.lines, &WorksheetLine::holds);
  });
}

std::string to_text(const Worksheet& worksheet) {
  std::string text = worksheet.title + "\n" + describe_given(worksheet);
  for (const WorksheetSection& section : worksheet.sections) {
    TextTable table({"name", "<what", "<formula", "by hand", "measured"});
    for (const WorksheetLine& line : section.lines) {
      table.add({line.name, line.what,
                 (line.relation == Relation::at_least  ? "at least "
                  : line.relation == Relation::at_most ? "at most "
                                                       : "") +
                     line.formula,
                 show(line.by_hand, section.is_time), measured(line, section.is_time)});
    }
    text += "\n" + section.title + "\n" + table.text();
  }
  return text;
}

}  // namespace fsdp::estimate
