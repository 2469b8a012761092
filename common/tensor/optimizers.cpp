#include "tensor/optimizers.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::ops {

const std::vector<OptimizerRow>& optimizers() {
  static const std::vector<OptimizerRow> all = {
      {Rule::adamw, "adamw", 15, {"exp_avg", "exp_avg_sq"}, {"beta1", "beta2", "eps"}},
      {Rule::adam, "adam", 15, {"exp_avg", "exp_avg_sq"}, {"beta1", "beta2", "eps"}},
      {Rule::adamax, "adamax", 11, {"exp_avg", "exp_inf"}, {"beta1", "beta2", "eps"}},
      {Rule::adagrad, "adagrad", 8, {"sum"}, {"eps", "lr_decay", "initial_accumulator_value"}},
      {Rule::adadelta, "adadelta", 16, {"square_avg", "acc_delta"}, {"eps", "rho"}},
      {Rule::lion, "lion", 10, {"exp_avg"}, {"beta1", "beta2"}},
      {Rule::sgd, "sgd", 4, {"momentum_buffer"}, {"momentum"}, &OptimizerOptions::momentum},
  };
  return all;
}

const std::vector<OptimizerOption>& optimizer_options() {
  using Options = OptimizerOptions;
  static const std::vector<OptimizerOption> all = {
      {"beta1", &Options::beta1, 0, 0.9999999},
      {"beta2", &Options::beta2, 0, 0.9999999},
      {"eps", &Options::eps, 1e-30, 1},
      {"weight_decay", &Options::weight_decay, 0, 1},
      {"momentum", &Options::momentum, 0, 0.9999999},
      {"lr_decay", &Options::lr_decay, 0, 1e6},
      {"initial_accumulator_value", &Options::initial_accumulator_value, 0, 1e30},
      {"rho", &Options::rho, 0, 0.9999999},
  };
  return all;
}

bool OptimizerRow::looks_at(std::string_view option) const {
  return option == "weight_decay" || std::ranges::find(options, option) != options.end();
}

std::span<const char* const> OptimizerRow::state_names(const OptimizerOptions& with) const {
  if (keeps_state != nullptr && with.*keeps_state == 0) return {};
  return states;
}

std::string OptimizerOption::users() const {
  std::vector<std::string> with, without;
  for (const OptimizerRow& row : optimizers())
    (row.looks_at(name) ? with : without).emplace_back(row.name);
  const bool are_most = 2 * without.size() <= with.size();
  return fmt::format("{}{}", are_most ? "all but " : "",
                     fmt::join(are_most ? without : with, ", "));
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : optimizers()) names.emplace_back(row.name);
  return names;
}

const OptimizerRow& optimizer_of(Rule rule) {
  return *std::ranges::find(optimizers(), rule, &OptimizerRow::rule);
}

const OptimizerRow& optimizer_named(std::string_view name) {
  const auto row = std::ranges::find(optimizers(), name, &OptimizerRow::name);
  FSDP_CHECK(row != optimizers().end(), "no optimizer is called {}; use one of {}", name,
             fmt::join(optimizer_names(), ", "));
  return *row;
}

}  // namespace fsdp::ops
