/// @file
/// What a program prints, read line by line: each number is compared with the value it stands for.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace fsdp::testing {

/// What one place of a text shows: words as they are, or a value in as many digits as are printed.
class Shown {
 public:
  using Units = std::map<std::string, double>;

  template <class Words>
  requires std::convertible_to<Words, std::string_view> Shown(const Words& words)
      : words_(std::string_view(words)) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Shown(Number value) : value_(static_cast<double>(value)) {}

  /// "12.34", of a value in this unit; nothing is "-".
  static Shown in(double value, double unit);
  /// "12.34 kB", with any of these units; nothing is "-".
  static Shown with(std::int64_t value, const Units& units);
  static Shown bytes(std::int64_t nbytes);      ///< B, kB, MB, GB
  static Shown time(std::int64_t picoseconds);  ///< ps, ns, us, ms, s

  /// Where in `text` it ends if it begins at `at`; nothing if something else stands there.
  std::optional<std::size_t> end_in(std::string_view text, std::size_t at) const;
  std::string as_text() const;  ///< for a message

 private:
  bool is_shown_by(std::string_view digits, double unit) const;

  std::string words_;
  std::optional<double> value_;
  double unit_ = 1;
  Units units_;
  bool has_dash_ = false;
};

/// Reads a text from its top. After the first difference it reads no more.
class PrintedText {
 public:
  explicit PrintedText(std::string_view text);

  /// The next line is `pattern`, whose {} are these.
  void line(std::string_view pattern, const std::vector<Shown>& values = {});
  /// The next line has these cells, with two blanks or more between them.
  void row(const std::vector<Shown>& cells);
  /// The next line is empty, or dashes.
  void rule();
  /// Leaves the next line to another test.
  void skip();
  /// The next line, unread; "" at the end.
  std::string_view next() const;

  /// What the first line that differs says, and what it should say; a line that was not read
  /// differs too. "" if there is none.
  std::string difference() const;

 private:
  void expect(bool holds, const std::string& expected);

  std::vector<std::string> lines_;
  std::size_t read_ = 0;
  std::string difference_;
};

using ReadText = std::function<void(PrintedText&)>;

/// What `read` finds in a text, to its end.
std::string difference_of(std::string_view text, const ReadText& read);

/// The first line in which `read` does not notice that the last digit of a number, or of its
/// fraction, is another one; "" if it notices all.
std::string unnoticed_change(const std::string& text, const ReadText& read);

}  // namespace fsdp::testing
