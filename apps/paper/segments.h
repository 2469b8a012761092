/// @file
/// @ingroup paper
/// The activations of a model that is frozen in part, and the segments of any model.
///
/// activation_table.h writes down the bytes of a fully trained model as sums. What is frozen
/// changes them from place to place: below the first trained parameter nothing is recorded at all,
/// and above it a linear with a frozen weight keeps no input. So the model is walked through on a
/// PaperTape.
#pragma once

#include "nn/transformer.h"
#include "paper/activation_table.h"
#include "paper/memory_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::paper {

/// Whether the parameter of this path gets a gradient.
bool is_trained(const MemoryOptions& options, const std::string& path);
/// Whether the weight at `path` is that of a product in float8 (TorchHabits).
bool is_in_float8(const MemoryOptions& options, const std::string& path);
/// Whether the linear of this path has an adapter.
bool is_adapted(const MemoryOptions& options, const std::string& path);

/// The segments of the model in forward order: embedding, blocks, head. Equal to those of the
/// activation table if nothing is frozen.
/// @param has_tape false: of a forward that records nothing
std::vector<SegmentMemory> segments_on_paper(const nn::TransformerConfig& config,
                                             const MemoryOptions& options, std::int64_t length,
                                             bool has_tape = true);

/// A model as a training runs it over one micro-batch.
struct TapedModel {
  Segments segments;  ///< embedding, blocks (checkpointed ones in their form), head
  SegmentMemory loss = {};
  std::int64_t data = 0;        ///< tokens and targets: the caller's, while it computes
  std::int64_t loss_value = 0;  ///< the loss, and what lives as long
};

/// As the framework of the options has it.
TapedModel taped_model(const nn::TransformerConfig& config, const MemoryOptions& options);

}  // namespace fsdp::paper
