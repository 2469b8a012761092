#include "comm/hang_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace fsdp {
namespace {

using Row = std::array<std::string, 6>;

Row row_of(const RankStatus& status) {
  const bool called = status.sequence >= 0;
  return {fmt::format("{}", status.rank),
          called ? fmt::format("{}", status.sequence) : "-",
          called ? status.operation : "-",
          called && !status.unit.empty() ? status.unit : "-",
          called ? fmt::format("{}", status.elements) : "-",
          status.state};
}

}  // namespace

std::string hang_table(const std::vector<RankStatus>& ranks) {
  std::vector<Row> rows{{"rank", "seq", "operation", "unit", "elements", "state"}};
  for (const RankStatus& status : ranks) rows.push_back(row_of(status));

  std::array<std::size_t, 6> width{};
  for (const Row& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      width[column] = std::max(width[column], row[column].size());

  std::string table;
  for (const Row& row : rows)
    table += fmt::format("{:>{}}  {:>{}}  {:<{}}  {:<{}}  {:>{}}  {}\n", row[0], width[0], row[1],
                         width[1], row[2], width[2], row[3], width[3], row[4], width[4], row[5]);
  return table;
}

}  // namespace fsdp
