/// @file
/// @ingroup plan
/// Which strategy when: where one becomes better than another, by formula.
#pragma once

#include "plan/evaluator.h"

#include <cstdint>
#include <string>

namespace fsdp::plan {

/// most_blocks() does not search any further.
inline constexpr auto kMostBlocks = static_cast<std::int64_t>(nn::kLimits.layers.most);

/// The most blocks of this model's width with which a training still fits. 0 = none; kMostBlocks =
/// so many or more.
std::int64_t most_blocks(const nn::TransformerConfig& model, const paper::MemoryOptions& options,
                         std::int64_t memory);

/// Four crossovers, as tables: the model size up to which each strategy fits; the link from which
/// on FSDP is as fast as ZeRO-2; the boxes across which a mesh is faster than FSDP; and
/// checkpointing beside a smaller batch.
/// @param base length, clip and optimizer are taken from it @param memory bytes of a device
std::string which_strategy_text(const nn::TransformerConfig& model, const CostModel& machine,
                                const paper::MemoryOptions& base, std::int64_t memory);

}  // namespace fsdp::plan
