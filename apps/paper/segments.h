/// @file
/// @ingroup paper
/// The segments of a model: what each holds and computes, forward and backward.
#pragma once

#include "nn/transformer_config.h"
#include "paper/memory_options.h"
#include "paper/segment_memory.h"

#include <cstdint>
#include <string>

namespace fsdp::paper {

/// Whether the weight at `path` is that of a product in float8 (TorchHabits).
bool is_in_float8(const MemoryOptions& options, const std::string& path);

/// A model as a training runs it over one micro-batch.
struct TapedModel {
  Segments segments;  ///< embedding, blocks (checkpointed ones in their form), head
  SegmentMemory loss = {};
  std::int64_t data = 0;        ///< tokens and targets: the caller's, while it computes
  std::int64_t loss_value = 0;  ///< the loss, and what lives as long
};

/// As the framework of the options has it. What is frozen changes the bytes from place to place:
/// below the first trained parameter nothing is recorded at all, and above it a linear with a
/// frozen weight keeps no input.
TapedModel taped_model(const nn::TransformerConfig& config, const MemoryOptions& options);

}  // namespace fsdp::paper
