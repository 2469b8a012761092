#include "structure/rules.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace structure {
namespace {

using Names = std::set<std::string>;

// Who may include whom, in full, in the order of the data flow. The rooms of apps/ may include all
// floors and tasks too.
const std::map<std::string, Names>& may_include() {
  static const std::map<std::string, Names> table = {
      {"warm_up", {}},     // stands beside the tasks, and is compiled in seconds
      {"race", {"base"}},  // likewise: policies, which need a few numbers of a machine
      {"base", {}},
      {"device", {"base"}},
      {"tensor", {"base", "device"}},
      // Floor 3. The graph and the wire do not know each other.
      {"autograd", {"base", "device", "tensor"}},
      {"comm", {"base", "device", "tensor"}},
      // Floor 4. A module notes that it is sharded, but calls no rank; an optimizer must, for the
      // norm of all gradients.
      {"nn", {"base", "device", "tensor", "autograd"}},
      {"optim", {"base", "device", "tensor", "autograd", "comm"}},
      // Floor 5. Files know modules, and nothing of ranks.
      {"io", {"base", "device", "tensor", "autograd", "nn"}},
      {"parallel", {"base", "device", "tensor", "autograd", "comm", "nn", "optim"}},
      // The rooms of apps/.
      {"apps/program", {}},
      {"apps/config", {}},
      {"apps/paper", {}},
      {"apps/launch", {"apps/program"}},
      {"apps/examples", {"apps/program"}},
      {"apps/show", {"apps/program"}},
      {"apps/strategies", {"apps/config"}},
      {"apps/report", {"apps/program", "apps/strategies"}},
      {"apps/plan", {"apps/program", "apps/paper", "apps/report"}},
      {"apps/playground", {"apps/paper", "apps/plan"}},
      {"apps/race", {"apps/program", "apps/paper", "apps/strategies", "apps/report", "apps/plan"}},
      {"apps/train",
       {"apps/program", "apps/config", "apps/paper", "apps/strategies", "apps/report"}},
      // An estimate reads the command line of a training, and answers with the planner's lists.
      {"apps/estimate",
       {"apps/program", "apps/config", "apps/paper", "apps/strategies", "apps/report", "apps/plan",
        "apps/train"}},
      {"apps/demo", {"apps/program", "apps/report", "apps/train", "apps/estimate"}},
  };
  return table;
}

/// "common/nn/module.h" → "nn"; "solutions/task3_forward/x.cpp" → "task3"; "apps/train/x.h" →
/// "apps/train".
std::string part_of(const std::string& path) {
  const std::size_t first = path.find('/');
  const std::size_t second = path.find('/', first + 1);
  const std::string top = path.substr(0, first);
  if (top == "apps") return path.substr(0, second);
  if (top == "tests" || first == std::string::npos) return top;
  const std::string folder = path.substr(first + 1, second - first - 1);
  return folder.starts_with("task") ? folder.substr(0, folder.find('_')) : folder;
}

bool is_task(const std::string& part) { return part.size() == 5 && part.starts_with("task"); }
bool is_room(const std::string& part) { return part.starts_with("apps/"); }

bool allowed(const std::string& from, const std::string& to) {
  if (from == to || from == "tests") return true;
  if (to == "tests") return false;
  if (is_room(from) && !is_room(to)) return true;
  if (is_task(from)) return is_task(to) ? to < from : !is_room(to);
  if (is_task(to)) return false;
  return may_include().at(from).contains(to);
}

struct Include {
  std::string name;
  bool quoted;
};

std::optional<Include> parse_include(const std::string& line) {
  const std::size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return std::nullopt;
  const std::size_t word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return std::nullopt;
  const std::size_t open = line.find_first_of("\"<", word);
  if (open == std::string::npos) return std::nullopt;
  const std::size_t close = line.find_first_of("\">", open + 1);
  return Include{line.substr(open + 1, close - open - 1), line[open] == '"'};
}

/// The project file an include names, or "" if it is none of ours.
std::string resolve(const Include& include, const std::string& includer,
                    const std::set<std::string>& paths) {
  constexpr std::array<std::string_view, 5> roots = {"common/", "tasks/", "solutions/", "apps/",
                                                     "tests/"};
  const std::string beside = includer.substr(0, includer.rfind('/') + 1) + include.name;
  if (include.quoted && paths.contains(beside)) return beside;
  for (const std::string_view root : roots) {
    const std::string path = std::string(root) + include.name;
    if (paths.contains(path)) return path;
  }
  return {};
}

/// The files that each one includes, of this project.
using Includes = std::map<std::string, Names>;

/// A step on paper is computed from data alone: what its files include reaches no memory, thread,
/// tape or file, by whatever way.
void add_paper_violations(const Includes& includes, Violations& found) {
  Names reached;
  std::vector<std::string> waiting;
  for (const auto& [path, targets] : includes) {
    if (path.starts_with("apps/paper/")) waiting.push_back(path);
  }
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    for (const std::string& target : includes.contains(path) ? includes.at(path) : Names{}) {
      if (!reached.insert(target).second) continue;
      waiting.push_back(target);
      const std::string part = part_of(target);
      if (part == "device" || part == "autograd" || part == "io") {
        found.push_back(path + ": by it, apps/paper reaches " + target);
      }
    }
  }
}

}  // namespace

Violations floor_violations(const std::vector<File>& files) {
  std::set<std::string> paths;
  for (const File& file : files) paths.insert(file.path);
  Violations found;
  Includes includes;
  for (const File& file : files) {
    const std::string from = part_of(file.path);
    if (!is_task(from) && from != "tests" && !may_include().contains(from)) {
      found.push_back(file.path + ": stands on no floor");
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::optional<Include> include = parse_include(file.lines[i]);
      if (!include) continue;
      const std::string target = resolve(*include, file.path, paths);
      if (target.empty()) {
        if (include->quoted) {
          found.push_back(at(file, i) + ": \"" + include->name + "\" is no file of this project");
        }
        continue;
      }
      includes[file.path].insert(target);
      if (target.ends_with(".cpp")) found.push_back(at(file, i) + ": includes " + target);
      const std::string to = part_of(target);
      if (!allowed(from, to)) {
        found.push_back(at(file, i) + ": " + from + " must not include " + to + " (" + target +
                        ")");
      }
    }
  }
  add_paper_violations(includes, found);
  return found;
}

}  // namespace structure
