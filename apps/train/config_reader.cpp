#include "train/config_reader.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>
#include <variant>

namespace fsdp::train {

namespace {

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The number of single-character edits between two words.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

template <class Range>
std::string range_text(const Range& range) {
  const Range whole;
  if (range.most == whole.most) return fmt::format("at least {}", range.least);
  return fmt::format("between {} and {}", range.least, range.most);
}

}  // namespace

ConfigReader::ConfigReader(const std::optional<std::filesystem::path>& file,
                           const std::vector<std::string>& overrides) {
  if (file) {
    file_name_ = file->string();
    given_ = values_of_file(*file);
  }
  for (GivenValue& given : values_of_command_line(overrides)) given_.push_back(std::move(given));
}

const GivenValue* ConfigReader::find(const std::string& key, const std::string& fallback,
                                     const char* meaning) {
  known_.push_back({key, fallback, meaning, fallback});
  const auto found = std::find_if(given_.rbegin(), given_.rend(),
                                  [&](const GivenValue& given) { return given.key == key; });
  return found == given_.rend() ? nullptr : &*found;
}

std::string ConfigReader::origin(const std::string& key) const {
  const auto found = std::find_if(given_.rbegin(), given_.rend(),
                                  [&](const GivenValue& given) { return given.key == key; });
  if (found != given_.rend()) return fmt::format("{}: {}", found->origin, key);
  return fmt::format("{}: {} (its default)", file_name_.empty() ? "command line" : file_name_, key);
}

void ConfigReader::complain(const std::string& key, const std::string& what) const {
  throw InputError(fmt::format("{}: {}", origin(key), what));
}

void ConfigReader::read(const std::string& key, std::int64_t& value, IntRange range,
                        const char* meaning) {
  const GivenValue* given = find(key, fmt::format("{}", value), meaning);
  if (given == nullptr) return;
  std::optional<std::int64_t> parsed;
  if (const auto* number = std::get_if<std::int64_t>(&given->value)) parsed = *number;
  if (const auto* text = std::get_if<GivenValue::Text>(&given->value))
    parsed = parse_int(text->text);
  if (!parsed) complain(key, fmt::format("needs a whole number, got {}", show(*given)));
  if (*parsed < range.least || *parsed > range.most) {
    complain(key, fmt::format("is {}, must be {}", *parsed, range_text(range)));
  }
  value = *parsed;
  known_.back().value = fmt::format("{}", value);
}

void ConfigReader::read(const std::string& key, int& value, IntRange range, const char* meaning) {
  std::int64_t wide = value;
  range.most = std::min<std::int64_t>(range.most, std::numeric_limits<int>::max());
  read(key, wide, range, meaning);
  value = static_cast<int>(wide);
}

void ConfigReader::read(const std::string& key, double& value, RealRange range,
                        const char* meaning) {
  const GivenValue* given = find(key, fmt::format("{}", value), meaning);
  if (given == nullptr) return;
  std::optional<double> parsed;
  if (const auto* real = std::get_if<double>(&given->value)) parsed = *real;
  if (const auto* number = std::get_if<std::int64_t>(&given->value)) {
    parsed = static_cast<double>(*number);
  }
  if (const auto* text = std::get_if<GivenValue::Text>(&given->value))
    parsed = parse_real(text->text);
  if (!parsed) complain(key, fmt::format("needs a number, got {}", show(*given)));
  // Written so that a NaN is refused too.
  if (!(*parsed >= range.least && *parsed <= range.most) || std::isinf(*parsed)) {
    complain(key, fmt::format("is {}, must be {}", *parsed, range_text(range)));
  }
  value = *parsed;
  known_.back().value = fmt::format("{}", value);
}

void ConfigReader::read(const std::string& key, bool& value, const char* meaning) {
  const GivenValue* given = find(key, fmt::format("{}", value), meaning);
  if (given == nullptr) return;
  const auto* text = std::get_if<GivenValue::Text>(&given->value);
  if (const auto* truth = std::get_if<bool>(&given->value)) {
    value = *truth;
  } else if (text != nullptr && (text->text == "true" || text->text == "false")) {
    value = text->text == "true";
  } else {
    complain(key, fmt::format("needs true or false, got {}", show(*given)));
  }
  known_.back().value = fmt::format("{}", value);
}

void ConfigReader::read(const std::string& key, std::string& value, const char* meaning) {
  const GivenValue* given = find(key, fmt::format("\"{}\"", value), meaning);
  known_.back().value = value;
  if (given == nullptr) return;
  if (const auto* quoted = std::get_if<std::string>(&given->value)) {
    value = *quoted;
  } else if (const auto* text = std::get_if<GivenValue::Text>(&given->value)) {
    value = text->text;
  } else {
    complain(key, fmt::format("needs a text in quotes, got {}", show(*given)));
  }
  known_.back().value = value;
}

void ConfigReader::read(const std::string& key, std::string& value,
                        const std::vector<std::string>& words, const char* meaning) {
  read(key, value, meaning);
  if (std::find(words.begin(), words.end(), value) == words.end()) {
    complain(key, fmt::format("is \"{}\", must be one of {}", value, join(words)));
  }
}

void ConfigReader::read_switch_or_number(const std::string& key, std::string& value,
                                         const char* meaning) {
  const GivenValue* given = find(key, value, meaning);
  if (given == nullptr) return;
  if (const auto* truth = std::get_if<bool>(&given->value)) {
    value = *truth ? "true" : "false";
  } else if (const auto* number = std::get_if<std::int64_t>(&given->value)) {
    value = fmt::format("{}", *number);
  } else if (const auto* text = std::get_if<GivenValue::Text>(&given->value);
             text != nullptr &&
             (text->text == "true" || text->text == "false" || parse_int(text->text))) {
    value = text->text;
  } else {
    complain(key, fmt::format("needs true, false or a whole number, got {}", show(*given)));
  }
  known_.back().value = value;
}

void ConfigReader::check_all_known() const {
  for (const GivenValue& given : given_) {
    const auto is_this = [&](const KnownKey& known) { return known.key == given.key; };
    if (std::any_of(known_.begin(), known_.end(), is_this)) continue;
    const auto nearest =
        std::min_element(known_.begin(), known_.end(), [&](const KnownKey& a, const KnownKey& b) {
          return edit_distance(a.key, given.key) < edit_distance(b.key, given.key);
        });
    const bool is_near =
        nearest != known_.end() && edit_distance(nearest->key, given.key) <= given.key.size() / 3;
    throw InputError(fmt::format("{}: unknown key {}{}", given.origin, given.key,
                                 is_near ? fmt::format("; did you mean {}?", nearest->key)
                                         : "; --help lists the keys there are"));
  }
}

}  // namespace fsdp::train
