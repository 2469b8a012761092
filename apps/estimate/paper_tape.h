/// @file
/// @ingroup estimate
/// PaperTape: what the tape of a model with frozen parameters keeps, operation by operation.
///
/// activation_table.h writes the bytes of a fully trained model down as sums. What is frozen changes
/// them from place to place: below the first trained parameter nothing is recorded at all, and
/// above it a linear with a frozen weight keeps no input. So the rules of autograd/functions.h are
/// followed here one by one, with bytes that are counted and never allocated.
#pragma once

#include "estimate/activation_table.h"
#include "estimate/memory_options.h"
#include "nn/transformer.h"

#include <cstdint>
#include <vector>

namespace fsdp::estimate {

/// Whether the parameter of this path gets a gradient.
bool is_trained(const MemoryOptions& options, const std::string& path);
/// Whether the linear of this path has an adapter.
bool is_adapted(const MemoryOptions& options, const std::string& path);

/// The segments of the model in forward order: embedding, blocks, head. Equal to those of the
/// activation table if nothing is frozen.
std::vector<SegmentMemory> segments_on_paper(const nn::TransformerConfig& config,
                                             const MemoryOptions& options, std::int64_t length);

}  // namespace fsdp::estimate
