#include "config/foreign/report.h"

#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::config::foreign {

void Report::add_problem(const std::string& problem) {
  std::string about;  // the key, if it is one of a file
  std::size_t place = accounts.size();
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    Account& each = accounts[i];
    std::vector<std::string> names = each.keys;
    names.push_back(printable(each.path));
    for (const std::string& name : names) {
      const std::string begin = fmt::format("{}: {}: ", each.place, name);
      const bool is_unknown =
          each.decision == Decision::unknown &&
          each.why == problem.substr(std::min(problem.size(), each.place.size() + 2));
      if (!problem.starts_with(begin) && !is_unknown) continue;
      about = begin;
      place = std::min(place, i);
      if (each.decision == Decision::unknown || blamed_.contains(about)) continue;
      each.decision = Decision::refused;
      each.why = problem.substr(begin.size());
    }
  }
  if (!blamed_.insert(about.empty() ? problem : about).second) return;
  const bool is_of_file = !about.empty();
  problems_.emplace_back(is_of_file ? place : static_cast<std::size_t>(-1), problem);
}

void Report::check() const {
  if (problems_.empty()) return;
  constexpr std::size_t kMost = 20;
  auto problems = problems_;
  std::ranges::stable_sort(problems, {}, &std::pair<std::size_t, std::string>::first);
  std::string text = problems[0].second;
  for (std::size_t i = 1; i < std::min(kMost, problems.size()); ++i) {
    text += "\n" + problems[i].second;
  }
  if (problems.size() > kMost) {
    text += fmt::format("\nand {} more problems", problems.size() - kMost);
  }
  throw InputError(text);
}

}  // namespace fsdp::config::foreign
