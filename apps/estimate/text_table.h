/// @file
/// @ingroup estimate
/// Tables and bytes as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::estimate {

/// Rows of cells in aligned columns: the first to the left, the others to the right, unless their
/// header begins with "<", which is not printed.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// A line across all columns.
  void rule() { rows_.emplace_back(); }
  /// Every line ends with a newline.
  std::string text() const;

 private:
  std::vector<bool> is_left_;
  std::vector<std::vector<std::string>> rows_;
};

/// What bytes are shown in; one for all tables of a report, so that their numbers compare.
class ByteScale {
 public:
  /// KiB, MiB or GiB: the largest in which `highest` is at least 10.
  explicit ByteScale(std::int64_t highest);
  std::string_view unit() const { return unit_; }
  /// Whether show() has a digit other than 0 for it.
  bool shows(std::int64_t nbytes) const { return static_cast<double>(nbytes) >= 0.005 * size_; }
  /// "12.34", "-" for nothing.
  std::string show(std::int64_t nbytes) const;
  /// "12.34 GiB"
  std::string with_unit(std::int64_t nbytes) const;

 private:
  std::string_view unit_;
  double size_;
};

}  // namespace fsdp::estimate
