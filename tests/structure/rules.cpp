#include "structure/rules.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string_view>

namespace structure {
namespace {

// Where conditional compilation is right, and why.
const std::map<std::string, std::string>& sanctioned_conditionals() {
  static const std::map<std::string, std::string> table = {
      {"common/device/cuda/warp_instructions.h", "PTX, which only nvcc knows"},
      {"common/tensor/cuda/unroll.h", "a pragma that only nvcc knows"},
      {"tests/support/catch.h", "Catch2 2 and 3 have different headers"},
      {"common/device/thread_pool.cpp", "the pause instruction, which only x86 has"},
      {"common/base/host_device.h", "the words that only nvcc knows"},
      {"common/tensor/simd.h", "a constraint that names the vector registers of x86"},
  };
  return table;
}

bool is_source(const File& file) {
  return file.path.ends_with(".h") || file.path.ends_with(".cpp") || file.path.ends_with(".cu");
}

bool is_below(const File& file, std::string_view folder) { return file.path.starts_with(folder); }

bool is_product(const File& file) {
  return is_source(file) && (is_below(file, "common/") || is_below(file, "tasks/") ||
                             is_below(file, "solutions/") || is_below(file, "apps/"));
}

bool contains(const std::string& line, std::string_view word) {
  return line.find(word) != std::string::npos;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Like contains, but not inside a longer word.
bool contains_word(const std::string& line, std::string_view word) {
  for (std::size_t p = line.find(word); p != std::string::npos; p = line.find(word, p + 1)) {
    const std::size_t end = p + word.size();
    if ((p == 0 || !is_letter(line[p - 1])) && (end == line.size() || !is_letter(line[end]))) {
      return true;
    }
  }
  return false;
}

bool any_line_contains(const File& file, std::string_view word) {
  return std::any_of(file.lines.begin(), file.lines.end(),
                     [&](const std::string& line) { return contains(line, word); });
}

std::string below_top(const std::string& path) { return path.substr(path.find('/') + 1); }

std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : line.substr(begin);
}

/// Characters, not bytes: continuation bytes of UTF-8 do not count.
std::size_t width(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

/// The Doxygen group of a header: its folder in common, "task3" for tasks/task3_forward.
std::string group_of(const std::string& path) {
  const std::size_t begin = path.find('/') + 1;
  const std::string folder = path.substr(begin, path.find('/', begin) - begin);
  return folder.starts_with("task") ? folder.substr(0, folder.find('_')) : folder;
}

}  // namespace

Violations long_files(const std::vector<File>& files, std::size_t limit) {
  Violations found;
  for (const File& file : files) {
    if (is_product(file) && file.lines.size() > limit) {
      found.push_back(file.path + ": " + std::to_string(file.lines.size()) + " lines, at most " +
                      std::to_string(limit) + ": split it by concept");
    }
  }
  return found;
}

Violations wide_lines(const std::vector<File>& files, std::size_t limit) {
  Violations found;
  for (const File& file : files) {
    if (!is_source(file)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (width(file.lines[i]) > limit) found.push_back(at(file, i) + ": too wide");
    }
  }
  return found;
}

Violations conditional_compilation(const std::vector<File>& files) {
  Violations found;
  for (const File& file : files) {
    if (!is_source(file) || sanctioned_conditionals().contains(file.path)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (trimmed(file.lines[i]).starts_with("#if")) {
        found.push_back(at(file, i) + ": " + trimmed(file.lines[i]));
      }
    }
  }
  return found;
}

Violations header_heads(const std::vector<File>& files, const File& groups) {
  Violations found;
  for (const File& file : files) {
    if (!file.path.ends_with(".h")) continue;
    if (!any_line_contains(file, "#pragma once")) found.push_back(file.path + ": no #pragma once");
    if (is_below(file, "tests/")) continue;
    const std::string group = group_of(file.path);
    if (!any_line_contains(file, "@file")) found.push_back(file.path + ": no @file");
    if (!any_line_contains(file, "@ingroup " + group)) {
      found.push_back(file.path + ": no @ingroup " + group);
    }
    if (!any_line_contains(groups, "@defgroup " + group + " ")) {
      found.push_back(groups.path + ": no @defgroup " + group);
    }
  }
  return found;
}

Violations own_header_later(const std::vector<File>& files) {
  std::set<std::string> headers;  // without their top folder, as they are included
  for (const File& file : files) {
    if (is_product(file) && file.path.ends_with(".h")) headers.insert(below_top(file.path));
  }
  Violations found;
  for (const File& file : files) {
    if (!is_product(file) || !file.path.ends_with(".cpp")) continue;
    const std::string path = below_top(file.path);
    const std::string own = path.substr(0, path.size() - 3) + "h";
    if (!headers.contains(own)) continue;
    const auto first =
        std::find_if(file.lines.begin(), file.lines.end(),
                     [](const std::string& line) { return line.starts_with("#include"); });
    if (first == file.lines.end() || *first != "#include \"" + own + '"') {
      found.push_back(file.path + ": its first include must be " + own);
    }
  }
  return found;
}

Violations bad_names(const std::vector<File>& files) {
  static const std::regex cut(R"re(TEST_CASE\("[^"]*;)re");
  static const std::regex option(R"re(TEST_CASE\("-)re");
  Violations found;
  for (const File& file : files) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (std::regex_search(file.lines[i], cut)) {
        found.push_back(at(file, i) + ": a semicolon in the name of a test case");
      }
      if (std::regex_search(file.lines[i], option)) {
        found.push_back(at(file, i) + ": the name of a test case begins with a dash");
      }
    }
  }
  return found;
}

Violations unfinished(const std::vector<File>& files) {
  Violations found;
  for (const File& file : files) {
    // The skeletons' steps are called TODO 4.2, and the reference keeps the marks.
    const bool has_steps = is_below(file, "tasks/") || is_below(file, "solutions/");
    if (!is_source(file) || has_steps || file.path.starts_with("tests/structure/") ||
        file.path == "common/base/todo.h") {
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string_view word : {"TODO", "FIXME", "XXX"}) {
        if (contains_word(file.lines[i], word)) {
          found.push_back(at(file, i) + ": " + trimmed(file.lines[i]));
        }
      }
    }
  }
  return found;
}

}  // namespace structure
