#include "structure/prose.h"

#include <cctype>
#include <regex>

namespace structure {
namespace {

/// Joins lines into passages, and replaces what is not running text.
class Collector {
 public:
  void add(std::size_t line_index, const std::string& line) {
    if (text_.empty()) begin_ = line_index;
    text_ += (text_.empty() ? "" : " ") + line;
  }
  void end() {
    static const std::regex code("``[^`]*``|`[^`]*`");
    static const std::regex target(R"(\]\([^()]*\))");
    if (!text_.empty()) {
      text_ = std::regex_replace(std::regex_replace(text_, code, "`x`"), target, "]");
      found_.push_back({begin_, std::move(text_)});
    }
    text_.clear();
  }
  std::vector<Passage> take() {
    end();
    return std::move(found_);
  }

 private:
  std::vector<Passage> found_;
  std::string text_;
  std::size_t begin_ = 0;
};

std::string stripped(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
}

bool is_list_item(const std::string& line) {
  static const std::regex item(R"(^\s*([-*]|[0-9]+\.) .*)");
  return std::regex_match(line, item);
}

std::vector<Passage> of_markdown(const File& file) {
  Collector found;
  bool is_fenced = false;
  bool is_after_blank = true;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    const bool is_fence = line.starts_with("```");
    const bool is_picture = is_after_blank && line.starts_with("    ");
    if (is_fence) is_fenced = !is_fenced;
    if (is_fence || is_fenced || is_picture || stripped(line).empty()) {
      found.end();
      is_after_blank = !is_fenced;
      continue;
    }
    is_after_blank = false;
    if (line.starts_with("|")) {
      std::size_t begin = 1;
      for (std::size_t bar = line.find('|', 1); bar != std::string::npos;
           begin = bar + 1, bar = line.find('|', begin)) {
        found.end();
        found.add(i, stripped(line.substr(begin, bar - begin)));
      }
      found.end();
      continue;
    }
    if (is_list_item(line) || line.starts_with("#")) found.end();
    found.add(i, stripped(line));
    if (line.starts_with("#")) found.end();
  }
  return found.take();
}

std::vector<Passage> of_toml(const File& file) {
  Collector found;
  bool is_text = false;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::string line = file.lines[i];
    const bool was_text = is_text;
    const std::size_t quotes = line.find("\"\"\"");
    if (quotes != std::string::npos) {
      is_text = !is_text;
      line = was_text ? line.substr(0, quotes) : line.substr(quotes + 3);
    }
    if (!was_text && !is_text) continue;
    if (line.starts_with("    ") || stripped(line).empty()) {
      found.end();
    } else {
      found.add(i, stripped(line));
    }
    if (!is_text) found.end();
  }
  return found.take();
}

std::vector<Passage> of_comments(const File& file) {
  Collector found;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    const std::size_t slashes = line.find("//");
    if (slashes == std::string::npos) {
      found.end();
      continue;
    }
    const std::size_t begin = line.find_first_not_of("/<", slashes);
    const std::string comment = begin == std::string::npos ? "" : line.substr(begin);
    const bool is_alone = stripped(line).starts_with("//");
    if (!is_alone || stripped(comment).starts_with("@")) found.end();
    if (is_alone && (stripped(comment).empty() || comment.starts_with("   "))) {
      found.end();  // a picture, or the end of a paragraph
    } else {
      found.add(i, stripped(comment));
    }
    if (!is_alone && line.find("///<") == std::string::npos) found.end();
  }
  return found.take();
}

/// The end of the literal that begins behind the quote at `begin`: the place of its last quote.
std::size_t end_of_literal(const std::string& line, std::size_t begin) {
  std::size_t p = begin + 1;
  while (p < line.size() && line[p] != '"') p += line[p] == '\\' ? 2 : 1;
  return p;
}

/// Literals that only blanks separate are one, as they are for the compiler.
std::vector<Passage> of_strings(const File& file) {
  Collector found;
  std::string text;
  std::size_t begin_line = 0;
  const auto end = [&] {
    if (!text.empty()) found.add(begin_line, text);
    found.end();
    text.clear();
  };
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    for (std::size_t p = 0; p < line.size(); ++p) {
      if (line.compare(p, 2, "//") == 0) break;
      if (line[p] == '"') {
        const std::size_t last = end_of_literal(line, p);
        if (text.empty()) begin_line = i;
        text += line.substr(p + 1, last - p - 1);
        p = last;
      } else if (std::isspace(static_cast<unsigned char>(line[p])) == 0) {
        end();
      }
    }
  }
  end();
  return found.take();
}

}  // namespace

std::vector<Passage> passages_of(const File& file) {
  if (file.path.ends_with(".md")) return of_markdown(file);
  if (file.path.ends_with(".toml")) return of_toml(file);
  if (file.path.ends_with(".h")) return of_comments(file);
  return of_strings(file);
}

}  // namespace structure
