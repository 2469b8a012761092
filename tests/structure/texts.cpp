#include "structure/rules.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace structure {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTargetLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kPathLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";

std::set<std::string> targets_of(const File& makefile) {
  std::set<std::string> targets;
  for (const std::string& line : makefile.lines) {
    const std::size_t end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-%");
    if (end != std::string::npos && end > 0 && line[end] == ':')
      targets.insert(line.substr(0, end));
  }
  return targets;
}

/// A pattern such as "test-%" covers "test-task3".
bool covered(const std::string& target, const std::set<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& pattern) {
    const std::size_t stem = pattern.find('%');
    return stem == std::string::npos
               ? pattern == target
               : target.starts_with(pattern.substr(0, stem)) && target.size() > stem;
  });
}

/// The longest run of `letters` that starts at `begin`.
std::string run_of(const std::string& line, std::size_t begin, std::string_view letters) {
  const std::size_t end = std::min(line.find_first_not_of(letters, begin), line.size());
  return line.substr(begin, end - begin);
}

void check_spans(const File& text, std::size_t i, const fs::path& root, Violations& found) {
  const std::string& line = text.lines[i];
  for (const std::string_view top :
       {"`common/", "`tasks/", "`solutions/", "`apps/", "`tests/", "`docs/", "`writeup/"}) {
    for (std::size_t p = line.find(top); p != std::string::npos; p = line.find(top, p + 1)) {
      const std::string path = run_of(line, p + 1, kPathLetters);
      // A pattern (`tasks/taskN_*`) or a command (`tests/x --y`) is not a plain name.
      const std::size_t end = p + 1 + path.size();
      if (end >= line.size() || line[end] != '`') continue;
      if (!fs::exists(root / path)) found.push_back(at(text, i) + ": no such file: " + path);
    }
  }
}

void check_links(const File& text, std::size_t i, const fs::path& root, Violations& found) {
  const std::string& line = text.lines[i];
  for (std::size_t p = line.find("]("); p != std::string::npos; p = line.find("](", p + 1)) {
    const std::string path = run_of(line, p + 2, kPathLetters);
    const std::size_t end = p + 2 + path.size();
    if (path.empty() || end >= line.size() || (line[end] != ')' && line[end] != '#')) continue;
    const fs::path target = (root / text.path).parent_path() / path;
    if (!fs::exists(target)) found.push_back(at(text, i) + ": dead link: " + path);
  }
}

}  // namespace

Violations unknown_make_targets(const std::vector<File>& texts, const File& makefile) {
  const std::set<std::string> targets = targets_of(makefile);
  Violations found;
  for (const File& text : texts) {
    for (std::size_t i = 0; i < text.lines.size(); ++i) {
      const std::string& line = text.lines[i];
      const std::string_view call = "`make ";
      for (std::size_t p = line.find(call); p != std::string::npos; p = line.find(call, p + 1)) {
        const std::string target = run_of(line, p + call.size(), kTargetLetters);
        if (!target.empty() && !covered(target, targets)) {
          found.push_back(at(text, i) + ": make has no target " + target);
        }
      }
    }
  }
  return found;
}

Violations dead_paths(const std::vector<File>& texts, const fs::path& root) {
  Violations found;
  for (const File& text : texts) {
    for (std::size_t i = 0; i < text.lines.size(); ++i) {
      check_spans(text, i, root, found);
      check_links(text, i, root, found);
    }
  }
  return found;
}

}  // namespace structure
