#include "io/json_file.h"

#include "base/printable.h"
#include "io/file_io.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace fsdp::io {
namespace {

using nlohmann::json;

// Counts the lines that the parser has read: it reports no places, but it calls back at each key.
class LineCounter {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the standard's names
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  // NOLINTEND(readability-identifier-naming)

  LineCounter(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_++ == '\n') ++*line_;
    return *this;
  }
  LineCounter operator++(int) {
    const LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  int* line_;
};

// Looks at a text once, before anything is built from it. (To watch while building takes quadratic
// time: the parser then searches an object for refused members after each one.)
class Watcher final : public nlohmann::json_sax<json> {
 public:
  Watcher(std::size_t before, const OnJsonKey& on_key) : before_(before), on_key_(on_key) {}

  void watch(std::string_view text) {
    const char* const end = text.data() + text.size();
    json::sax_parse(LineCounter(text.data(), &line_), LineCounter(end, &line_), this);
  }

  bool start_object(std::size_t) override {
    path_.emplace_back();
    names_.emplace_back();
    return go_deeper();
  }
  bool end_object() override {
    path_.pop_back();
    names_.pop_back();
    return end_array();
  }
  bool start_array(std::size_t) override { return go_deeper(); }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(std::string& name) override {
    path_.back() = name;
    if (!names_.back().insert(name).second) refuse(fmt::format("names \"{}\" twice", whole_path()));
    if (on_key_) on_key_(path_, line_);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    // Not the parser's own words: they repeat what was read, which may be any bytes.
    if (dynamic_cast<const json::out_of_range*>(&error) != nullptr) {
      refuse("is not JSON: it holds a number beyond all bounds");
    }
    throw JsonError(fmt::format("is not JSON from byte {} on", before_ + byte),
                    byte > 0 ? byte - 1 : 0, line_);
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw JsonError(what, std::string::npos, line_);
  }

  bool go_deeper() {
    if (++depth_ > kDeepestJson) {
      refuse(fmt::format("is nested more than {} deep, which no file of its kind needs",
                         kDeepestJson));
    }
    return true;
  }

  std::string whole_path() const {
    std::string whole;
    for (const std::string& name : path_) whole += (whole.empty() ? "" : ".") + name;
    return printable(whole);
  }

  std::size_t before_;
  const OnJsonKey& on_key_;
  int line_ = 1;
  std::size_t depth_ = 0;
  std::vector<std::string> path_;             // the key being read, in each object around
  std::vector<std::set<std::string>> names_;  // of each of these objects
};

void check(std::string_view text, std::size_t before, const OnJsonKey& on_key) {
  Watcher(before, on_key).watch(text);
}

}  // namespace

json parse_json(std::string_view text, std::size_t before) {
  check(text, before, nullptr);
  return json::parse(text);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const OnJsonKey& on_key) {
  check(text, 0, on_key);
  return nlohmann::ordered_json::parse(text);
}

json read_json_object(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 26;
  const auto refuse = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}; copy or save it again", path.string(), what));
  };
  const std::string text = read_text(path, kMostBytes);
  json object;
  try {
    object = parse_json(text);
  } catch (const JsonError& error) {
    refuse(error.what());
  }
  if (!object.is_object()) refuse("is not a JSON object");
  return object;
}

std::string shown(const json& value) { return printable(value.dump()); }

}  // namespace fsdp::io
