#include "config/foreign/report.h"

#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::config::foreign {

void Report::add_problem(const std::string& problem) {
  std::string about;  // the key, if it is one of a file
  for (Account& each : accounts) {
    std::vector<std::string> names = each.keys;
    names.push_back(printable(each.path));
    for (const std::string& name : names) {
      const std::string begin = fmt::format("{}: {}: ", each.place, name);
      if (!problem.starts_with(begin)) continue;
      about = begin;
      if (each.decision == Decision::unknown || blamed_.contains(about)) continue;
      each.decision = Decision::refused;
      each.why = problem.substr(begin.size());
    }
  }
  if (blamed_.insert(about.empty() ? problem : about).second) problems_.push_back(problem);
}

void Report::check() const {
  if (problems_.empty()) return;
  constexpr std::size_t kMost = 20;
  std::string text = problems_[0];
  for (std::size_t i = 1; i < std::min(kMost, problems_.size()); ++i) text += "\n" + problems_[i];
  if (problems_.size() > kMost) {
    text += fmt::format("\nand {} more problems", problems_.size() - kMost);
  }
  throw InputError(text);
}

}  // namespace fsdp::config::foreign
