#include "task4/frames.h"

#include "device/context.h"
#include "support/toy_model.h"

#include <algorithm>

namespace fsdp::graded {

Case in_micro_step(Case asked, int m) {
  const Json orders = asked.options.value("orders", Json::array());
  if (!orders.empty()) asked.options["order"] = orders[static_cast<std::size_t>(m) % orders.size()];
  return asked;
}

std::vector<std::string> backward_order(const Case& asked) {
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

std::string next_in_backward(const Case& asked, const std::string& unit) {
  const auto order = backward_order(asked);
  const auto found = std::find(order.begin(), order.end(), unit);
  return found == order.end() || found + 1 == order.end() ? "" : *(found + 1);
}

std::vector<std::string> reduction_order(const Case& asked) {
  std::vector<std::string> order = backward_order(asked);
  const auto units = units_of(asked);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    if (std::find(order.begin(), order.end(), unit->name) == order.end()) {
      order.push_back(unit->name);
    }
  }
  return order;
}

}  // namespace fsdp::graded
