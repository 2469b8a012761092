/// @file
/// @ingroup estimate
/// What others say of the states of ZeRO: parameters, gradients, masters and optimizer state.
#pragma once

#include "estimate/estimate_run.h"
#include "estimate/estimator_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// The ZeRO paper's sum for one rank, of so many parameters, with masters in float32. Gradients are
/// counted in the format in which they are added up.
std::int64_t paper_states(const optim::Recipe& recipe, std::int64_t numel);

/// What DeepSpeed's own estimators say, for a card and for the host of a node.
struct ZeroNeeds {
  std::int64_t device = 0;
  std::int64_t host = 0;
};
struct ZeroCards {
  int per_node = 1;
  int nodes = 1;
};
/// estimate_zero2_model_states_mem_needs() with its defaults.
ZeroNeeds zero2_needs(std::int64_t numel, const ZeroCards& cards, bool offloads);
/// estimate_zero3_model_states_mem_needs() likewise; offload moves optimizer and parameters.
/// @param largest elements of the largest layer
/// @param keeps_shards offload moves the optimizer alone
ZeroNeeds zero3_needs(std::int64_t numel, std::int64_t largest, const ZeroCards& cards,
                      bool offloads, bool keeps_shards = false);

/// The paper, DeepSpeed's estimator and the walk beside each other, of --framework deepspeed; else
/// empty.
struct StatesLine {
  std::string who;
  std::int64_t device = 0;
  std::int64_t host = 0;  ///< of a node
  std::string what;
};
std::vector<StatesLine> states_lines(const EstimatorConfig& config, const EstimateRun& run);

}  // namespace fsdp::estimate
