#include "config/deepspeed/document.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/keys.h"
#include "io/file_io.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>

namespace fsdp::config::deepspeed {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{1} << 16;  // no configuration is longer

[[noreturn]] void refuse(const std::string& file, int line, const std::string& what) {
  throw InputError(fmt::format("{}:{}: {}", file, line, what));
}

// DeepSpeed reads Hjson, so a file may have comments, and a comma after the last value. They become
// blanks, so everything else stays on its line.
std::string as_json(std::string text) {
  char before = '{';  // the last letter that counts
  std::size_t comma = std::string::npos;
  const auto blank = [&](std::size_t begin, std::size_t end) {
    std::replace_if(
        text.begin() + static_cast<std::ptrdiff_t>(begin),
        text.begin() + static_cast<std::ptrdiff_t>(end), [](char c) { return c != '\n'; }, ' ');
    return end;
  };
  for (std::size_t at = 0; at < text.size();) {
    const bool is_line = text[at] == '#' || text.compare(at, 2, "//") == 0;
    if (is_line || text.compare(at, 2, "/*") == 0) {
      const std::size_t end = is_line ? text.find('\n', at) : text.find("*/", at + 2);
      if (end == std::string::npos && !is_line) break;  // the parser says where
      at = blank(at, std::min(text.size(), is_line ? end : end + 2));
      continue;
    }
    const char letter = text[at++];
    if (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r') continue;
    if (letter == '"') {
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      ++at;
    }
    const bool is_end = letter == '}' || letter == ']';
    if (is_end && before == ',' && comma != std::string::npos) blank(comma, comma + 1);
    const bool may_be_last = before != ',' && before != '{' && before != '[' && before != ':';
    comma = letter == ',' && may_be_last ? at - 1 : std::string::npos;
    before = letter;
  }
  return text;
}

// Which line each key stands on, by its path.
Json parse(const std::string& text, const std::string& file, std::map<std::string, int>& lines) {
  const auto on_key = [&](const std::vector<std::string>& path, int line) {
    lines[fmt::format("{}", fmt::join(path, "."))] = line;
  };
  try {
    return io::parse_ordered_json(text, on_key);
  } catch (const io::JsonError& error) {
    if (error.byte == std::string::npos) refuse(file, error.line, error.what());
    refuse_yaml(text, file);
    const auto at = text.begin() + std::ssize(text.substr(0, error.byte));
    const auto begin = std::find(std::make_reverse_iterator(at), text.rend(), '\n').base();
    const auto number = static_cast<int>(std::count(text.begin(), at, '\n')) + 1;
    refuse(file, number,
           fmt::format("not JSON, at \"{}\"; JSON has true and false in lower case, texts in "
                       "double quotes, and a comma between two values",
                       printable({begin, std::find(at, text.end(), '\n')})));
  }
}

}  // namespace

std::string Entry::origin() const { return place + ": " + printable(path); }

std::string Entry::text() const {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::abs(number) < 0x1p53 && std::trunc(number) == number) {
      return fmt::format("{:.0f}", number);
    }
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Entry::shown() const {
  return value.is_string() ? '"' + printable(text()) + '"' : printable(text());
}

void Entry::refuse(const std::string& why) const {
  throw InputError(fmt::format("{}: {}", origin(), why));
}

bool is_comment(const std::string& path) {
  const auto begins = [&](std::size_t at) {
    return path.compare(at, 1, "_") == 0 || path.compare(at, 2, "//") == 0;
  };
  for (std::size_t at = 0; at < path.size(); ++at) {
    if (begins(at) && (at == 0 || path[at - 1] == '.')) return true;
  }
  return false;
}

Document::Document(const std::filesystem::path& file, const std::vector<std::string>& paths)
    : file_(file.string()) {
  const std::string text = io::read_text(file, kMostBytes);
  if (text.empty()) {
    throw InputError(file_ + ": is empty; write a JSON object, or leave --deepspeed out");
  }
  std::map<std::string, int> lines;
  const Json root = parse(as_json(text), file_, lines);
  if (!root.is_object()) refuse(file_, 1, "is no JSON object; begin it with {");
  const auto walk = [&](const Json& object, const std::string& prefix, const auto& self) -> void {
    for (const auto& [name, value] : object.items()) {
      const std::string path = prefix + name;
      const Entry entry{path, fmt::format("{}:{}", file_, lines.at(path)), value};
      if (name.find('.') != std::string::npos && !is_comment(path)) {
        entry.refuse("is a name with a dot; write a section as a JSON object of its own");
      }
      const bool is_value = std::ranges::find(paths, path) != paths.end();
      const bool is_section = std::ranges::any_of(
          paths, [&](const std::string& each) { return each.starts_with(path + "."); });
      if (value.is_null() && (is_value || is_section)) continue;
      if (is_section && !is_value && !value.is_object()) {
        entry.refuse(fmt::format("is {}, must be a JSON object such as {{\"{}\": …}}",
                                 entry.shown(),
                                 std::ranges::find_if(paths, [&](const std::string& each) {
                                   return each.starts_with(path + ".");
                                 })->substr(path.size() + 1)));
      }
      if (is_section && !is_value) {
        self(value, path + ".", self);
      } else {
        entries_.push_back(entry);
      }
    }
  };
  walk(root, "", walk);
}

const Entry* Document::find(const std::string& path) const {
  const auto found = std::ranges::find(entries_, path, &Entry::path);
  return found == entries_.end() ? nullptr : &*found;
}

bool Document::has_section(const std::string& name) const {
  return std::ranges::any_of(entries_,
                             [&](const Entry& each) { return each.path.starts_with(name + "."); });
}

}  // namespace fsdp::config::deepspeed
