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

/// A number as text. `fits` is false for one that is right but beyond the type.
template <class T>
struct Parsed {
  std::optional<T> value;
  bool fits = true;
};

template <class T>
Parsed<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return {};
  if (error == std::errc::result_out_of_range) return {std::nullopt, false};
  return {value};
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

template <class Range>
std::string values_text(const char* type, const Range& range) {
  return fmt::format("{}, {}", type, range_text(range));
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

const GivenValue* ConfigReader::given_of(const std::string& key) const {
  const auto found = std::find_if(given_.rbegin(), given_.rend(),
                                  [&](const GivenValue& given) { return given.key == key; });
  return found == given_.rend() ? nullptr : &*found;
}

const GivenValue* ConfigReader::find(const std::string& key, const std::string& fallback,
                                     const char* meaning, std::string values) {
  known_.push_back({key, fallback, meaning, fallback, std::move(values)});
  return given_of(key);
}

std::string ConfigReader::origin(const std::string& key) const {
  if (const GivenValue* given = given_of(key)) return fmt::format("{}: {}", given->origin, key);
  return fmt::format("{}: {} (its default)", file_name_.empty() ? "command line" : file_name_, key);
}

std::string ConfigReader::text_of(const std::string& key) const {
  const GivenValue& given = *given_of(key);
  const auto* text = std::get_if<GivenValue::Text>(&given.value);
  return text != nullptr ? plain(text->text) : show(given);
}

void ConfigReader::complain(const std::string& key, const std::string& what) {
  const GivenValue* given = given_of(key);
  const std::size_t place =
      given == nullptr ? given_.size() : static_cast<std::size_t>(given - given_.data());
  complaints_.push_back({place, fmt::format("{}: {}", origin(key), what)});
}

void ConfigReader::read(const std::string& key, std::int64_t& value, IntRange range,
                        const char* meaning) {
  const GivenValue* given =
      find(key, fmt::format("{}", value), meaning, values_text("whole number", range));
  if (given == nullptr) return;
  Parsed<std::int64_t> parsed;
  if (const auto* number = std::get_if<std::int64_t>(&given->value)) parsed.value = *number;
  if (const auto* text = std::get_if<GivenValue::Text>(&given->value)) {
    parsed = parse<std::int64_t>(text->text);
    if (!parsed.fits) {
      return complain(key, fmt::format("is {}, must be between {} and {}", plain(text->text),
                                       range.least, range.most));
    }
  }
  if (!parsed.value) {
    return complain(key, fmt::format("needs a whole number, got {}", show(*given)));
  }
  if (*parsed.value < range.least || *parsed.value > range.most) {
    return complain(key, fmt::format("is {}, must be {}", *parsed.value, range_text(range)));
  }
  value = *parsed.value;
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
  const GivenValue* given =
      find(key, fmt::format("{}", value), meaning, values_text("number", range));
  if (given == nullptr) return;
  Parsed<double> parsed;
  if (const auto* real = std::get_if<double>(&given->value)) parsed.value = *real;
  if (const auto* number = std::get_if<std::int64_t>(&given->value)) {
    parsed.value = static_cast<double>(*number);
  }
  if (const auto* text = std::get_if<GivenValue::Text>(&given->value)) {
    parsed = parse<double>(text->text);
    if (!parsed.fits) {
      return complain(key, fmt::format("is {}, must be {}", plain(text->text), range_text(range)));
    }
  }
  if (!parsed.value) return complain(key, fmt::format("needs a number, got {}", show(*given)));
  // Written so that a NaN is refused too.
  if (!(*parsed.value >= range.least && *parsed.value <= range.most) || std::isinf(*parsed.value)) {
    return complain(key, fmt::format("is {}, must be {}", *parsed.value, range_text(range)));
  }
  value = *parsed.value;
  known_.back().value = fmt::format("{}", value);
}

void ConfigReader::read(const std::string& key, bool& value, const char* meaning) {
  const GivenValue* given = find(key, fmt::format("{}", value), meaning, "true or false");
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
  read(key, value, std::vector<std::string>{}, meaning);
}

void ConfigReader::read(const std::string& key, std::string& value,
                        const std::vector<std::string>& words, const char* meaning) {
  const GivenValue* given = find(key, fmt::format("\"{}\"", value), meaning,
                                 words.empty() ? "text" : "one of " + join(words));
  known_.back().value = value;
  if (given == nullptr) return;
  const auto* quoted = std::get_if<std::string>(&given->value);
  const auto* text = std::get_if<GivenValue::Text>(&given->value);
  if (quoted == nullptr && text == nullptr) {
    return complain(key, fmt::format("needs a text in quotes, got {}", show(*given)));
  }
  const std::string& word = quoted != nullptr ? *quoted : text->text;
  if (word.find('\0') != std::string::npos) {
    return complain(key, "holds a character NUL, which no text may have");
  }
  if (!words.empty() && std::find(words.begin(), words.end(), word) == words.end()) {
    return complain(key, fmt::format("is \"{}\", must be one of {}", plain(word), join(words)));
  }
  value = word;
  known_.back().value = value;
}

void ConfigReader::read_switch_or_number(const std::string& key, std::string& value,
                                         const char* meaning) {
  const GivenValue* given = find(key, value, meaning, "true, false or a whole number");
  if (given == nullptr) return;
  if (const auto* truth = std::get_if<bool>(&given->value)) {
    value = *truth ? "true" : "false";
  } else if (const auto* number = std::get_if<std::int64_t>(&given->value)) {
    value = fmt::format("{}", *number);
  } else if (const auto* text = std::get_if<GivenValue::Text>(&given->value);
             text != nullptr && (text->text == "true" || text->text == "false" ||
                                 parse<std::int64_t>(text->text).value)) {
    value = text->text;
  } else {
    complain(key, fmt::format("needs true, false or a whole number, got {}", show(*given)));
  }
  known_.back().value = value;
}

std::string ConfigReader::complaint_about_unknown(const GivenValue& given) const {
  for (const KeyDescription& known : known_) {
    if (known.key.starts_with(given.key + ".")) {
      return fmt::format("{}: is a section with keys of its own, such as {}", plain(given.key),
                         known.key);
    }
    if (given.key.starts_with(known.key + ".")) {
      return fmt::format("{}: is one value ({}), not a section with a key {}", known.key,
                         known.values, plain(given.key.substr(known.key.size() + 1)));
    }
  }
  const auto nearest = std::min_element(
      known_.begin(), known_.end(), [&](const KeyDescription& a, const KeyDescription& b) {
        return edit_distance(a.key, given.key) < edit_distance(b.key, given.key);
      });
  const bool is_near =
      nearest != known_.end() && edit_distance(nearest->key, given.key) <= given.key.size() / 3;
  return fmt::format("unknown key {}{}", plain(given.key),
                     is_near ? fmt::format("; did you mean {}?", nearest->key)
                             : "; --help lists the keys there are");
}

void ConfigReader::complain_about_unknown() {
  for (std::size_t place = 0; place < given_.size(); ++place) {
    const GivenValue& given = given_[place];
    const auto* other = std::get_if<GivenValue::Other>(&given.value);
    const bool is_empty = other != nullptr && other->type == GivenValue::kEmptySection;
    if (std::any_of(known_.begin(), known_.end(), [&](const KeyDescription& known) {
          return known.key == given.key || (is_empty && known.key.starts_with(given.key + "."));
        })) {
      continue;
    }
    complaints_.push_back(
        {place, fmt::format("{}: {}", given.origin, complaint_about_unknown(given))});
  }
}

void ConfigReader::check() const {
  const auto first =
      std::min_element(complaints_.begin(), complaints_.end(),
                       [](const Complaint& a, const Complaint& b) { return a.place < b.place; });
  if (first != complaints_.end()) throw InputError(first->text);
}

}  // namespace fsdp::train
