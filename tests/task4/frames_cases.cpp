#include "task4/frames.h"

#include "device/context.h"
#include "graded/remember.h"
#include "support/toy_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fsdp::graded {

Case in_micro_step(Case asked, int m) {
  const auto index = static_cast<std::size_t>(m);
  const Json orders = asked.options.value("orders", Json::array());
  if (!orders.empty()) asked.options["order"] = orders[index % orders.size()];
  const Json aside = asked.options.value("aside", Json::array());
  if (!aside.empty()) asked.options["open"] = aside[index % aside.size()];
  const auto dropped = asked.options.value("dropped", std::vector<int>{});
  if (index < dropped.size() && dropped[index] > 0) asked.options["open"] = -1;
  return asked;
}

namespace {

std::vector<std::string> find_backward_order(const Case& asked) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  testing::Toy model(config_of(asked));
  model.order = asked.options.value("order", model.order);
  std::vector<std::string> ended;
  const auto watch = [&](nn::Module& module, const std::string& name) {
    module.register_full_backward_hook([&ended, name](nn::Module&) {
      std::erase(ended, name);
      ended.push_back(name);
    });
  };
  for (const UnitLayout& unit : units_of(asked)) {
    watch(unit.name == "root" ? model : *model.find(unit.name), unit.name);
  }
  testing::toy_loss(model, config_of(asked).width, 0, 0).backward();
  return ended;
}

}  // namespace

std::vector<std::string> backward_order(const Case& asked) {
  return remembered(asked, [&] { return find_backward_order(asked); });
}

std::string next_in_backward(const Case& asked, const std::string& unit) {
  const auto order = backward_order(asked);
  const auto found = std::find(order.begin(), order.end(), unit);
  return found == order.end() || found + 1 == order.end() ? "" : *(found + 1);
}

std::vector<std::string> reduction_order(const Case& asked) {
  std::vector<std::string> order = backward_order(asked);
  const auto units = units_of(asked);
  const Json open = asked.options.value("open", Json::array());
  if (!open.is_array()) order.clear();
  for (const Json& layer : open) std::erase(order, fmt::format("layers.{}", layer.dump()));
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    if (std::find(order.begin(), order.end(), unit->name) == order.end()) {
      order.push_back(unit->name);
    }
  }
  return order;
}

bool is_reached_only_before(const Case& asked, const std::string& name) {
  bool reached = false;
  for (int m = 0; m < asked.options.value("micro_steps", 1); ++m) {
    const auto order = backward_order(in_micro_step(asked, m));
    const bool now = std::find(order.begin(), order.end(), name) != order.end();
    if (reached && !now) return true;
    reached = reached || now;
  }
  return false;
}

std::vector<std::string> gathers_of(const Case& asked) {
  const auto reached = backward_order(asked);
  const auto kept = asked.options.value("keep", std::vector<std::string>{});
  const bool all_kept = asked.options.value("group", 0) == 1;
  std::vector<std::string> lines;
  for (const UnitLayout& unit : units_of(asked)) {
    const auto is_in = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), unit.name) != names.end();
    };
    const bool keeps = all_kept || unit.name == "root" || is_in(kept);
    if (!is_in(reached) || (keeps && !asked.options.value("evaluate", false))) continue;
    lines.insert(lines.end(), unit.flats.size(), gather_line(unit.name));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::int64_t most_full_gradients(const Case& asked, int m) {
  const int per_reduction = asked.options.value("per_reduction", 1);
  const bool reduces = (m + 1) % per_reduction == 0;
  const std::int64_t before = partials(m % per_reduction), after = partials(m % per_reduction + 1);
  std::map<std::string, std::int64_t> bytes;
  std::int64_t held = 0, most = 0, in_flight = 0;
  for (const UnitLayout& unit : units_of(asked)) {
    bytes[unit.name] = full_grad_bytes(unit, asked.world_size);
    held += before * bytes[unit.name];
  }
  if (bytes.contains("root")) held += bytes["root"];  // the first to begin, and the last to end
  for (const std::string& name : reduction_order(asked)) {
    if (bytes[name] == 0) continue;  // a frozen unit may leave in flight what is in flight
    most = std::max(most, held + bytes[name] + in_flight);
    held += ((reduces ? 0 : after) - before) * bytes[name];
    in_flight = reduces ? bytes[name] : 0;
  }
  return most;
}

}  // namespace fsdp::graded
