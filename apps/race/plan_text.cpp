#include "race/plan_text.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace fsdp::race {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 1 << 20;
constexpr int kMostNeighbors = 1 << 20;

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw InputError(fmt::format("the plan's {}: {}", field, why));
}

/// "units[3]", "units[3].keep", "units[3].before_forward[0]"
std::string field_of(std::size_t unit, const std::string& key = "") {
  return fmt::format("units[{}]{}{}", unit, key.empty() ? "" : ".", key);
}

std::string name_at(const std::string& field, const json& value) {
  if (!value.is_string()) refuse(field, io::shown(value) + " is no name of a module");
  return value.get<std::string>();
}

int count_at(const std::string& field, const json& value) {
  if (!value.is_number_integer() || value < 0 || value > kMostNeighbors) {
    refuse(field, io::shown(value) + "; write a number of ranks");
  }
  return value.get<int>();
}

bool flag_at(const std::string& field, const json& value) {
  if (!value.is_boolean()) refuse(field, io::shown(value) + "; write true or false");
  return value.get<bool>();
}

std::vector<std::string> names_at(const std::string& field, const json& value) {
  if (!value.is_array()) refuse(field, io::shown(value) + "; write a list of names");
  std::vector<std::string> names;
  for (const json& each : value) {
    names.push_back(name_at(fmt::format("{}[{}]", field, names.size()), each));
  }
  return names;
}

Unit unit_at(std::size_t place, const json& value) {
  if (!value.is_object()) refuse(field_of(place), io::shown(value) + " is no unit");
  Unit unit;
  for (const auto& [key, each] : value.items()) {
    const std::string field = field_of(place, key);
    if (key == "module") {
      unit.module = name_at(field, each);
    } else if (key == "keep") {
      unit.keep = flag_at(field, each);
    } else if (key == "keep_part") {
      unit.keep_part = flag_at(field, each);
    } else if (key == "checkpoint") {
      unit.checkpoint = flag_at(field, each);
    } else if (key == "before_forward") {
      unit.before_forward = names_at(field, each);
    } else if (key == "before_backward") {
      unit.before_backward = names_at(field, each);
    } else {
      refuse(field_of(place),
             fmt::format("a unit has no {}; it has module, keep, keep_part, checkpoint, "
                         "before_forward and before_backward",
                         printable(key)));
    }
  }
  return unit;
}

}  // namespace

std::string to_json(const Plan& plan) {
  json units = json::array();
  for (const Unit& each : plan.units) {
    units.push_back({{"module", each.module},
                     {"keep", each.keep},
                     {"keep_part", each.keep_part},
                     {"checkpoint", each.checkpoint},
                     {"before_forward", each.before_forward},
                     {"before_backward", each.before_backward}});
  }
  return json{{"units", std::move(units)}, {"neighbors", plan.neighbors}}.dump();
}

Plan plan_from_json(std::string_view text) {
  if (text.size() > kMostBytes) {
    throw InputError(
        fmt::format("the plan has {} bytes; at most {} are read", text.size(), kMostBytes));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InputError("the policy handed no plan over: it ended before plan() returned");
  }
  json read;
  try {
    read = io::parse_json(text);
  } catch (const io::JsonError& error) {
    throw InputError(
        fmt::format("the plan {}; a policy only returns it from plan()", error.what()));
  }
  if (!read.is_object()) throw InputError("the plan is no JSON object");
  Plan plan;
  for (const auto& [key, value] : read.items()) {
    if (key == "units" && value.is_array()) continue;
    if (key != "neighbors") {
      refuse(printable(key), key == "units"
                                 ? "is no list of units"
                                 : "a plan has no such field; it has units and neighbors");
    }
    plan.neighbors = count_at(key, value);
  }
  if (!read.contains("units")) return plan;
  for (const json& each : read["units"]) plan.units.push_back(unit_at(plan.units.size(), each));
  return plan;
}

namespace {

/// @throws InputError unless the plan's ranks can keep parts, or none does
void check_neighbors(const Plan& plan, int ranks) {
  if (plan.neighbors == 0 && std::ranges::none_of(plan.units, &Unit::keep_part)) return;
  std::vector<int> allowed;
  for (int s = 2; s < ranks; ++s) {
    if (ranks % s == 0) allowed.push_back(s);
  }
  if (std::ranges::find(allowed, plan.neighbors) != allowed.end()) return;
  if (allowed.empty()) {
    refuse("neighbors",
           fmt::format("{} ranks have no smaller groups of equal size; leave it 0, and "
                       "let no unit keep a part",
                       ranks));
  }
  refuse("neighbors", fmt::format("{}; of {} ranks, {} can share a unit of which parts are kept",
                                  plan.neighbors, ranks, fmt::join(allowed, " or ")));
}

}  // namespace

void check_plan(const Plan& plan, const std::vector<Module>& modules, int ranks) {
  std::set<std::string> units;
  for (std::size_t i = 0; i < plan.units.size(); ++i) {
    const Unit& unit = plan.units[i];
    const std::string name = printable(unit.module);
    if (!units.insert(unit.module).second) {
      refuse(field_of(i, "module"), fmt::format("{} is a unit already; name it once", name));
    }
    const auto module = std::ranges::find(modules, unit.module, &Module::name);
    if (unit.module == kRoot) {
      if (unit.keep || unit.keep_part || unit.checkpoint) {
        refuse(field_of(i),
               "the root is always kept and never checkpointed; leave keep, keep_part and "
               "checkpoint false");
      }
      continue;
    }
    if (unit.keep && unit.keep_part) {
      refuse(field_of(i), fmt::format("{} is kept, and a part of it too; choose one", name));
    }
    if (module == modules.end()) {
      refuse(field_of(i, "module"),
             fmt::format("{} cannot be a unit; those that can are the names in Problem::modules",
                         name));
    }
    if (unit.checkpoint && !module->is_block) {
      refuse(field_of(i, "checkpoint"),
             fmt::format("{} is no block; only modules with is_block can be checkpointed", name));
    }
  }
  check_neighbors(plan, ranks);
  const bool has_root =
      std::ranges::any_of(modules, [&](const Module& each) { return !units.contains(each.name); });
  if (units.size() == (units.contains(kRoot) ? 1U : 0U)) {
    refuse("units", "there is none; name at least one module of Problem::modules");
  }
  for (std::size_t i = 0; i < plan.units.size(); ++i) {
    const Unit& unit = plan.units[i];
    if (unit.module == kRoot && !has_root) {
      refuse(field_of(i, "module"), "every module is a unit, so there is no root; leave it out");
    }
    for (const auto& [key, names] : {std::pair("before_forward", &unit.before_forward),
                                     {"before_backward", &unit.before_backward}}) {
      for (std::size_t k = 0; k < names->size(); ++k) {
        if (units.contains((*names)[k])) continue;
        refuse(fmt::format("{}[{}]", field_of(i, key), k),
               fmt::format("{} is no unit of this plan; gather what `units` names",
                           printable((*names)[k])));
      }
    }
  }
}

ReshardAfterForward parts_of(const Plan& plan, int ranks) {
  for (int s = std::min(plan.neighbors, ranks - 1); s > 1; --s) {
    if (ranks % s == 0) return ReshardAfterForward::within(s);
  }
  return ReshardAfterForward::never();
}

}  // namespace fsdp::race
