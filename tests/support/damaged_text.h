/// @file
/// Configurations as people and editors damage them, from a fixed seed.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing {

/// `text` with one to three lines changed: mostly another value behind `assign`. Else a letter is
/// more, less or another, the line is empty or one of `other_lines`, or two have changed places.
inline std::string damaged(const std::string& text, std::mt19937& random, char assign,
                           const std::vector<std::string>& values,
                           const std::vector<std::string>& other_lines) {
  const auto below = [&](std::size_t n) { return random() % n; };
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (std::size_t n = 1 + below(3); n > 0; --n) {
    std::string& line = lines[below(lines.size())];
    const std::size_t at = line.empty() ? 0 : below(line.size());
    switch (below(10)) {
      default: {
        const bool goes_on = line.ends_with(',');
        line = line.substr(0, line.find(assign) + 1) + " " + values[below(values.size())] +
               (goes_on ? "," : "");
        break;
      }
      case 1:
        if (!line.empty()) line.erase(at, 1);
        break;
      case 2:
        line.insert(at, 1, static_cast<char>(' ' + below(95)));
        break;
      case 3:
        line.clear();
        break;
      case 4:
        line = other_lines[below(other_lines.size())];
        break;
      case 5:
        if (!line.empty()) line[at] = static_cast<char>(below(256));
        break;
      case 0:
        std::swap(line, lines[below(lines.size())]);
    }
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

/// Whether two texts are one value.
inline bool is_same_value(const std::string& a, const std::string& b) {
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  const bool are_numbers = !a.empty() && !b.empty() && *end_a == '\0' && *end_b == '\0';
  return are_numbers ? x == y : a == b;
}

}  // namespace fsdp::testing
