/// @file
/// @ingroup tensor
/// The table of the optimizers: a row per optimizer, and what it can be told. Its arithmetic stands
/// in optimizer_rules.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::ops {

enum class Rule { adamw, adam, adamax, adagrad, adadelta, lion, sgd };

/// What optimizers can be told, by the names and with the defaults of a configuration. Each looks
/// at some of it.
struct OptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0;
  double lr_decay = 0;  ///< step t has the rate lr / (1 + (t - 1) · lr_decay)
  double initial_accumulator_value = 0;
  double rho = 0.9;
};

using OptionMember = double OptimizerOptions::*;

/// One step of an optimizer.
struct Update {
  Rule rule;
  double lr;
  std::int64_t step;  ///< counts from 1
  OptimizerOptions options = {};
  /// These times the gradient, one after the other, each product rounded as scale() would. It stays
  /// as it is.
  double mean_factor = 1, clip_factor = 1;
};

struct OptimizerRow {
  Rule rule;
  const char* name;                  ///< as optimizer.name has it
  double flops;                      ///< of one element's update
  std::vector<const char*> states;   ///< PyTorch's names of the tensors that it keeps
  std::vector<const char*> options;  ///< that it looks at, beside weight_decay
  /// Without this option, it keeps no state.
  OptionMember keeps_state = nullptr;

  bool looks_at(std::string_view option) const;
  std::span<const char* const> state_names(const OptimizerOptions& with) const;
};

/// An option as a configuration offers it.
struct OptimizerOption {
  const char* name;
  OptionMember member;
  double least, most;
  /// The optimizers that look at it: "adamw, adam", "all but sgd".
  std::string users() const;
};

/// In the order in which --help lists them.
const std::vector<OptimizerRow>& optimizers();
const std::vector<OptimizerOption>& optimizer_options();
std::vector<std::string> optimizer_names();
const OptimizerRow& optimizer_of(Rule rule);
/// @throws Error if there is none of this name.
const OptimizerRow& optimizer_named(std::string_view name);

}  // namespace fsdp::ops
