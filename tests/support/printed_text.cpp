#include "support/printed_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace fsdp::testing {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// "-1,234.56e+03" at the front of a text.
std::string_view number_at(std::string_view text) {
  const auto digit = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
  std::size_t end = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (!digit(end)) return {};
  while (digit(end) || (text.substr(end).starts_with(',') && digit(end + 1))) ++end;
  if (text.substr(end).starts_with('.') && digit(end + 1)) {
    for (++end; digit(end);) ++end;
  }
  const bool has_exponent =
      text.substr(end).starts_with("e+") || text.substr(end).starts_with("e-");
  if (has_exponent && digit(end + 2)) {
    for (end += 2; digit(end);) ++end;
  }
  return text.substr(0, end);
}

}  // namespace

Shown Shown::in(double value, double unit) {
  Shown shown(value);
  shown.unit_ = unit;
  shown.has_dash_ = true;
  return shown;
}

Shown Shown::with(std::int64_t value, const Units& units) {
  Shown shown = in(static_cast<double>(value), 1);
  shown.units_ = units;
  return shown;
}

Shown Shown::bytes(std::int64_t nbytes) {
  return with(nbytes, {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}});
}

Shown Shown::time(std::int64_t picoseconds) {
  return with(picoseconds, {{"ps", 1}, {"ns", 1e3}, {"us", 1e6}, {"ms", 1e9}, {"s", 1e12}});
}

bool Shown::is_shown_by(std::string_view digits, double unit) const {
  std::string plain(digits);
  std::erase(plain, ',');
  const std::size_t exponent = std::min(plain.find('e'), plain.size());
  const std::size_t point = std::min(plain.find('.'), exponent);
  const auto decimals = static_cast<int>(exponent - std::min(point + 1, exponent));
  const int power = exponent < plain.size() ? std::atoi(plain.c_str() + exponent + 1) : 0;
  const double half = 0.5 * std::pow(10, power - decimals);
  const double expected = *value_ / unit;
  const double away = std::abs(std::strtod(plain.c_str(), nullptr) - expected);
  if (away < half * (1 - 1e-9)) return true;
  // Halfway between two, the even one is printed.
  const bool is_even = (plain[exponent - 1] - '0') % 2 == 0;
  return is_even && away <= half * (1 + 1e-9) + 2e-16 * std::abs(expected);
}

std::optional<std::size_t> Shown::end_in(std::string_view text, std::size_t at) const {
  const std::string_view rest = text.substr(std::min(at, text.size()));
  if (!value_) return rest.starts_with(words_) ? std::optional(at + words_.size()) : std::nullopt;
  const std::string_view digits = number_at(rest);
  if (digits.empty()) {
    const bool is_dash = has_dash_ && *value_ == 0 && rest.starts_with('-');
    return is_dash ? std::optional(at + 1) : std::nullopt;
  }
  if (has_dash_ && *value_ == 0) return std::nullopt;
  const std::size_t end = at + digits.size();
  if (units_.empty()) return is_shown_by(digits, unit_) ? std::optional(end) : std::nullopt;
  for (const auto& [name, unit] : units_) {
    const std::string_view behind = rest.substr(digits.size());
    const bool is_it = behind.starts_with(' ' + name) &&
                       (behind.size() == name.size() + 1 ||
                        std::isalpha(static_cast<unsigned char>(behind[name.size() + 1])) == 0);
    if (is_it && is_shown_by(digits, unit)) return end + 1 + name.size();
  }
  return std::nullopt;
}

std::string Shown::as_text() const { return value_ ? fmt::format("{}", *value_ / unit_) : words_; }

PrintedText::PrintedText(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines_.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void PrintedText::expect(bool holds, const std::string& expected) {
  if (!difference_.empty()) return;
  if (!holds) {
    difference_ = fmt::format("line {} is \"{}\", not \"{}\"", read_ + 1, next(), expected);
  }
  ++read_;
}

void PrintedText::line(std::string_view pattern, const std::vector<Shown>& values) {
  const std::string_view text = next();
  std::optional<std::size_t> at = 0;
  std::string expected;
  auto value = values.begin();
  while (!pattern.empty()) {
    const std::size_t mark = std::min(pattern.find("{}"), pattern.size());
    const bool is_next = mark == 0 && value != values.end();
    const Shown part =
        is_next ? *value++ : Shown(pattern.substr(0, std::max<std::size_t>(mark, 1)));
    pattern.remove_prefix(is_next ? 2 : std::max<std::size_t>(mark, 1));
    if (at) at = part.end_in(text, *at);
    expected += part.as_text();
  }
  expect(at == text.size() && value == values.end() && read_ < lines_.size(), expected);
}

void PrintedText::row(const std::vector<Shown>& cells) {
  std::vector<std::string_view> found;
  std::string_view rest = next();
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::size_t end = std::min(rest.find("  "), rest.size());
    if (end > 0) found.push_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  std::string expected;
  bool holds = found.size() == cells.size() && read_ < lines_.size();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    expected += (i == 0 ? "" : "  ") + cells[i].as_text();
    holds = holds && cells[i].end_in(found[i], 0) == found[i].size();
  }
  expect(holds, expected);
}

void PrintedText::rule() {
  expect(read_ < lines_.size() && next().find_first_not_of('-') == std::string_view::npos, "----");
}

void PrintedText::skip() { expect(read_ < lines_.size(), "one more line"); }

std::string_view PrintedText::next() const {
  return read_ < lines_.size() ? std::string_view(lines_[read_]) : std::string_view();
}

std::string PrintedText::difference() const {
  if (!difference_.empty() || read_ == lines_.size()) return difference_;
  return fmt::format("line {} is \"{}\", and nothing is expected there", read_ + 1, next());
}

std::string difference_of(std::string_view text, const ReadText& read) {
  PrintedText lines(text);
  read(lines);
  return lines.difference();
}

std::string unnoticed_change(const std::string& text, const ReadText& read) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i]) || (i + 1 < text.size() && is_digit(text[i + 1]))) continue;
    std::string changed = text;
    changed[i] = text[i] == '9' ? '8' : static_cast<char>(text[i] + 1);
    if (!difference_of(changed, read).empty()) continue;
    const std::size_t begin = changed.rfind('\n', i) + 1;
    return changed.substr(begin, changed.find('\n', i) - begin);
  }
  return {};
}

}  // namespace fsdp::testing
