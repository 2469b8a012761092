#include "plan/quantity.h"

#include "base/check.h"
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace fsdp::plan {

namespace {

using Suffix = std::pair<std::string_view, double>;

/// A positive number with one of these suffixes.
double parse(const std::string& name, const std::string& text, std::string_view example,
             const std::vector<Suffix>& suffixes) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string_view rest(stop, static_cast<std::size_t>(end - stop));
  for (const auto& [suffix, factor] : suffixes) {
    if (error != std::errc{} || rest != suffix) continue;
    const double result = value * factor;
    if (std::isfinite(result) && result > 0 && result < 9e18) return result;
  }
  throw InputError(fmt::format("{}: is \"{}\", must be a positive quantity such as {}", name,
                               printable(text), example));
}

/// Prefixes with a unit behind them.
std::vector<Suffix> prefixed(std::string_view unit, std::vector<std::string>& texts) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kPrefixes{{{"", 1.0},
                                                                          {"k", 1e3},
                                                                          {"M", 1e6},
                                                                          {"G", 1e9},
                                                                          {"T", 1e12},
                                                                          {"P", 1e15},
                                                                          {"Ki", 0x1p10},
                                                                          {"Mi", 0x1p20},
                                                                          {"Gi", 0x1p30}}};
  std::vector<Suffix> result;
  texts.reserve(texts.size() + kPrefixes.size());
  for (const auto& [prefix, factor] : kPrefixes) {
    texts.push_back(fmt::format("{}{}", prefix, unit));
    result.emplace_back(texts.back(), factor);
  }
  return result;
}

double parse_prefixed(const std::string& name, const std::string& text, std::string_view example,
                      const std::vector<std::string_view>& units) {
  std::vector<Suffix> suffixes;
  std::vector<std::vector<std::string>> texts(units.size());
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const Suffix& suffix : prefixed(units[i], texts[i])) suffixes.push_back(suffix);
  }
  return parse(name, text, example, suffixes);
}

std::int64_t parse_whole(const std::string& name, const std::string& text, const char* example) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > 1 << 20) {
    throw InputError(fmt::format("{}: \"{}\" is not a whole number from 1 to {}; write {}", name,
                                 printable(text), 1 << 20, example));
  }
  return value;
}

/// Throws unless the value is between two bounds, which are written as a user would.
void check_between(const std::string& name, const std::string& text, double value, double least,
                   const char* least_text, double most, const char* most_text) {
  if (value >= least && value <= most) return;
  throw InputError(fmt::format("{}: is \"{}\", must be between {} and {}", name, printable(text),
                               least_text, most_text));
}

/// Four digits that count.
std::string digits(double value) {
  const int before = value >= 1000 ? 4 : value >= 100 ? 3 : value >= 10 ? 2 : 1;
  return fmt::format("{:.{}f}", value, 4 - before);
}

/// In the largest of `units` that fits once; the last one is 1.
std::string show(std::int64_t value, const std::vector<Suffix>& units) {
  if (value == 0) return "-";
  const auto amount = static_cast<double>(value);
  const auto unit = std::ranges::find_if(
      units, [&](const Suffix& each) { return amount >= each.second || each.second == 1; });
  return fmt::format("{} {}", digits(amount / unit->second), unit->first);
}

}  // namespace

std::int64_t parse_bytes(const std::string& name, const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789.") == std::string::npos) {
    throw InputError(fmt::format("{0}: is \"{1}\": {1}GB or {1}GiB? Write the unit (B for bytes)",
                                 name, printable(text)));
  }
  const double nbytes = parse_prefixed(name, text, "80GB or 40GiB", {"B", ""});
  check_between(name, text, nbytes, 1, "1 byte", 1e18, "1000PB");
  return std::llround(nbytes);
}

double parse_rate(const std::string& name, const std::string& text) {
  const double rate = parse_prefixed(name, text, "50GB/s or 400T", {"", "B/s", "FLOPS", "FLOP/s"});
  check_between(name, text, rate, 1, "1 per second", 1e18, "1000P");
  return rate;
}

double parse_share(const std::string& name, const std::string& text) {
  const double share = text == "0" ? 0 : parse(name, text, "15%", {{"%", 0.01}, {"", 1}});
  check_between(name, text, share, 0, "0", 1, "100%");
  return share;
}

std::int64_t parse_duration(const std::string& name, const std::string& text) {
  const double ps = parse(name, text, "5us or 300ns",
                          {{"ps", 1}, {"ns", 1e3}, {"us", 1e6}, {"ms", 1e9}, {"s", 1e12}});
  check_between(name, text, ps, 1, "1ps", 1e15, "1000s");
  return std::llround(ps);
}

std::int64_t parse_count(const std::string& name, const std::string& text) {
  return parse_whole(name, text, "64");
}

std::vector<std::int64_t> parse_range(const std::string& name, const std::string& text) {
  constexpr const char* kExample = "8 or 8..64";
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return {parse_whole(name, text, kExample)};
  const std::int64_t first = parse_whole(name, text.substr(0, dots), kExample);
  const std::int64_t last = parse_whole(name, text.substr(dots + 2), kExample);
  if (first > last) {
    throw InputError(
        fmt::format("{}: is \"{}\", must go up: the smaller number first", name, printable(text)));
  }
  std::vector<std::int64_t> values;
  for (std::int64_t value = first; value <= last; value *= 2) values.push_back(value);
  return values;
}

std::string show_time(std::int64_t picoseconds) {
  return show(picoseconds, {{"s", 1e12}, {"ms", 1e9}, {"us", 1e6}, {"ns", 1e3}, {"ps", 1}});
}

std::string show_memory(std::int64_t nbytes) {
  return show(nbytes, {{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}});
}

std::string show_share(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace fsdp::plan
