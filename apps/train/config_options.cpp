#include "train/config_options.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdp::train {
namespace {

std::string needs(const std::string& what, const std::string& text) {
  return fmt::format("needs {}, got {}", what, text.empty() ? "nothing" : plain(text));
}

template <class T>
Values number(const std::string& type, T least, T most) {
  const std::string range = most == std::numeric_limits<T>::max()
                                ? fmt::format("at least {}", least)
                                : fmt::format("between {} and {}", least, most);
  const auto check = [=](const std::string& text) -> std::string {
    T value{};
    const std::errc error = parse_number(text, value);
    if (error == std::errc::invalid_argument) return needs("a " + type, text);
    // Written so that a NaN is refused too.
    if (error == std::errc() && value >= least && value <= most) return {};
    return fmt::format("is {}, must be {}", plain(text), range);
  };
  return {type + ", " + range, check};
}

bool is_truth(const std::string& text) { return text == "true" || text == "false"; }

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

}  // namespace

Values whole(std::int64_t least, std::int64_t most) { return number("whole number", least, most); }
Values real(double least, double most) { return number("number", least, most); }

Values truth() {
  const std::string what = "true or false";
  return {what, [=](const std::string& text) { return is_truth(text) ? "" : needs(what, text); }};
}

Values truth_or_whole() {
  const std::string what = "true, false or a whole number";
  return {what, [=](const std::string& text) {
            std::int64_t ignored = 0;
            const bool fits = is_truth(text) || parse_number(text, ignored) == std::errc();
            return fits ? "" : needs(what, text);
          }};
}

Values any_text() {
  const auto check = [](const std::string& text) {
    return text.find('\0') == text.npos ? "" : "holds a character NUL, which no text may have";
  };
  return {"text", check, true};
}

Values one_of(const std::vector<std::string>& words) {
  const std::string what = fmt::format("one of {}", fmt::join(words, ", "));
  const auto check = [=](const std::string& text) {
    const bool is_word = std::find(words.begin(), words.end(), text) != words.end();
    return is_word ? "" : fmt::format("is \"{}\", must be {}", plain(text), what);
  };
  return {what, check, true};
}

ConfigOptions::ConfigOptions() {
  app_.set_help_flag();
  app_.allow_extras();
}

void ConfigOptions::finish(CLI::Option* option, const Values& values,
                           std::function<std::string()> value_of) {
  option->type_name(values.description)->check(values.check);
  option->default_str(values.is_text ? fmt::format("\"{}\"", value_of()) : value_of());
  // In the order of the words: the first wrong one is reported, and the last right one counts.
  option->trigger_on_parse()->take_last();
  keys_.push_back({option->get_lnames().front(), option, values.is_text, std::move(value_of)});
}

void ConfigOptions::set(const FileValue& value) {
  const auto is_within = [&](const Key& key) { return key.name.starts_with(value.key + "."); };
  if (value.is_empty_section && std::any_of(keys_.begin(), keys_.end(), is_within)) return;
  const auto is_it = [&](const Key& key) { return key.name == value.key; };
  const auto key = std::find_if(keys_.begin(), keys_.end(), is_it);
  if (key == keys_.end()) {
    throw InputError(fmt::format("{}: {}", value.origin, about_unknown(value.key)));
  }
  if (key->is_text && !value.is_quoted) {
    throw InputError(
        fmt::format("{}: {}: {}", value.origin, value.key, needs("a text in quotes", value.text)));
  }
  // A text in the place of anything else is refused by its name: `the text "3"` is no number.
  const bool is_misplaced = value.is_quoted && !key->is_text;
  set({"--" + key->name,
       is_misplaced ? fmt::format("the text \"{}\"", plain(value.text)) : value.text},
      value.origin);
}

void ConfigOptions::set(std::vector<std::string> words, const std::string& origin) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (app_.get_option_no_throw(name) == nullptr) continue;
    // After "--key=" CLI11 would take the next word for the value.
    if (words[i] == name + "=") {
      words[i] = name;
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "");
    }
    if (words[i] == name) ++i;  // to its value, which may look like anything
  }
  std::string complaint;
  try {
    app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    complaint = text.substr(0, text.find(": ")) + ": a value must follow";
  } catch (const CLI::ParseError& error) {
    complaint = error.what();
  }
  if (!complaint.empty()) complaint.erase(0, complaint.find_first_not_of('-'));
  // CLI11 puts aside what it does not know: when something else is wrong too, that came before.
  if (const std::vector<std::string> unknown = app_.remaining(); !unknown.empty()) {
    const std::string& word = unknown.front();
    complaint =
        word.starts_with("--")
            ? about_unknown(word.substr(2, word.find('=') - 2))
            : fmt::format("unexpected \"{}\"; a setting is --training.steps 100 (see --help)",
                          plain(word));
  }
  if (!complaint.empty()) throw InputError(origin + ": " + complaint);
  for (const Key& key : keys_) {
    if (key.option->count() > 0) origins_[key.name] = origin;
  }
}

std::string ConfigOptions::about_unknown(const std::string& key) const {
  for (const Key& known : keys_) {
    if (known.name.starts_with(key + ".")) {
      return fmt::format("{}: is a section with keys of its own, such as {}", plain(key),
                         known.name);
    }
    if (key.starts_with(known.name + ".")) {
      return fmt::format("{}: is one value ({}), not a section with a key {}", known.name,
                         known.option->get_type_name(), plain(key.substr(known.name.size() + 1)));
    }
  }
  const auto is_nearer = [&](const Key& a, const Key& b) {
    return edit_distance(a.name, key) < edit_distance(b.name, key);
  };
  const std::string& nearest = std::min_element(keys_.begin(), keys_.end(), is_nearer)->name;
  return fmt::format("unknown key {}{}", plain(key),
                     edit_distance(nearest, key) <= key.size() / 3
                         ? fmt::format("; did you mean {}?", nearest)
                         : "; --help lists the keys, such as --training.steps 100");
}

}  // namespace fsdp::train
