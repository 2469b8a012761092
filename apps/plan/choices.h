/// @file
/// @ingroup plan
/// The choices that make a configuration, each by name and value.
#pragma once

#include "paper/memory_options.h"

#include <array>
#include <string>
#include <string_view>

namespace fsdp::plan {

enum class Choice {
  strategy,
  ranks,
  replicas,
  reshard,
  prefetch,
  checkpointing,
  precision,
  offload,
  micro_batch,
};
inline constexpr std::array kChoices{Choice::strategy,  Choice::ranks,    Choice::replicas,
                                     Choice::reshard,   Choice::prefetch, Choice::checkpointing,
                                     Choice::precision, Choice::offload,  Choice::micro_batch};
std::string_view name_of(Choice choice);  ///< "strategy", "micro-batch", …

/// What was chosen: "fsdp", "64", "always", …; "" where the strategy knows no such choice.
std::string value_of(Choice choice, const paper::MemoryOptions& options);

/// "fsdp over 64 ranks, 4 replicas, reshard always, prefetch 1, bfloat16 with sums in float32, …"
std::string describe(const paper::MemoryOptions& options);

}  // namespace fsdp::plan
