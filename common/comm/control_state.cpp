#include "comm/control_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace fsdp::control {
namespace {

/// One thing that all ranks must pass alike, and how to say it.
struct Field {
  std::string_view name;
  std::string (*text)(const Collective&);
};

std::string device_of(const Collective& call) { return call.on_device ? "cuda" : "cpu"; }

// In the order of what a reader wants to hear first: a wrong operation makes its size meaningless.
constexpr Field kFields[] = {
    {"the operation", [](const Collective& call) { return std::string(name_of(call.op)); }},
    {"the label", [](const Collective& call) { return to_string(call.label); }},
    {"the device", device_of},
    {"the element type", [](const Collective& call) { return std::string(name_of(call.dtype)); }},
    {"the number of elements",
     [](const Collective& call) { return fmt::format("{}", call.numel); }},
    {"the reduction", [](const Collective& call) { return std::string(name_of(call.reduce)); }},
    {"the root", [](const Collective& call) { return fmt::format("{}", call.root); }},
};

bool agree(const Collective& a, const Collective& b) {
  return std::tie(a.op, a.label, a.dtype, a.numel, a.reduce, a.root) ==
             std::tie(b.op, b.label, b.dtype, b.numel, b.reduce, b.root) &&
         (a.on_device == nullptr) == (b.on_device == nullptr);
}

}  // namespace

Group::Group(std::vector<int> ranks) : members(std::move(ranks)), progress(members.size()) {}

std::vector<int> missing_members(const Operation& operation) {
  std::vector<int> missing;
  const std::vector<Group::Progress>& progress = operation.group->progress;
  for (std::size_t member = 0; member < progress.size(); ++member)
    if (progress[member].called <= operation.sequence) missing.push_back(static_cast<int>(member));
  return missing;
}

std::string disagreement(const Operation& operation) {
  const Collective& first = operation.calls.front();
  for (std::size_t other = 1; other < operation.calls.size(); ++other) {
    const Collective& call = operation.calls[other];
    if (agree(first, call)) continue;
    for (const Field& field : kFields) {
      const std::string expected = field.text(first);
      const std::string actual = field.text(call);
      if (expected != actual)
        return fmt::format("ranks disagree on {} of collective {}: {} on rank {}, {} on rank {}",
                           field.name, operation.sequence, expected,
                           operation.group->members.front(), actual,
                           operation.group->members[other]);
    }
  }
  return {};
}

std::vector<std::shared_ptr<Group>> make_parts(const Operation& split) {
  const std::vector<int>& members = split.group->members;
  std::map<int, std::vector<int>> by_color;  // color -> parent's group ranks
  for (std::size_t member = 0; member < members.size(); ++member)
    by_color[split.choices[member].color].push_back(static_cast<int>(member));

  std::vector<std::shared_ptr<Group>> parts(members.size());
  for (auto& [color, ranks] : by_color) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return split.choices[static_cast<std::size_t>(a)].key <
             split.choices[static_cast<std::size_t>(b)].key;
    });
    std::vector<int> world_ranks;
    for (const int rank : ranks) world_ranks.push_back(members[static_cast<std::size_t>(rank)]);
    const auto part = std::make_shared<Group>(std::move(world_ranks));
    for (const int rank : ranks) parts[static_cast<std::size_t>(rank)] = part;
  }
  return parts;
}

}  // namespace fsdp::control
