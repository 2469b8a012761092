#include "estimate/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::estimate {
namespace {

// Characters, not bytes: "µ" is one.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header) {
  for (std::string& each : header) {
    const bool is_left = each.starts_with('<');
    if (is_left) each.erase(0, 1);
    is_left_.push_back(is_left || is_left_.empty());
  }
  rows_.push_back(std::move(header));
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::size_t whole = 2 * (widths.size() - 1);
  for (const std::size_t width : widths) whole += width;
  std::string text;
  for (const auto& row : rows_) {
    if (row.empty()) text += std::string(whole, '-');
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - width_of(row[i]), ' ');
      if (i > 0) line += "  ";
      line += is_left_[i] ? row[i] + gap : gap + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
  }
  return text;
}

ByteScale::ByteScale(std::int64_t highest) {
  const auto at_least_ten = [&](int power) { return highest >= std::int64_t{10} << power; };
  unit_ = at_least_ten(30) ? "GiB" : at_least_ten(20) ? "MiB" : "KiB";
  size_ = at_least_ten(30) ? 0x1p30 : at_least_ten(20) ? 0x1p20 : 0x1p10;
}

std::string ByteScale::show(std::int64_t nbytes) const {
  return nbytes == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(nbytes) / size_);
}

std::string ByteScale::with_unit(std::int64_t nbytes) const {
  return fmt::format("{:.2f} {}", static_cast<double>(nbytes) / size_, unit_);
}

}  // namespace fsdp::estimate
