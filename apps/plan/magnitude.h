/// @file
/// @ingroup plan
/// Trainings whose bytes or picoseconds do not fit 64 bits.
#pragma once

#include "base/clock.h"
#include "nn/transformer.h"
#include "paper/memory_options.h"

namespace fsdp::plan {

/// Checks a rough count, with real numbers, of the memory of a rank.
/// @throws InputError beyond 2^62 bytes.
void check_bytes(const nn::TransformerConfig& model, const paper::MemoryOptions& options);

/// The same of the time of a step. @throws InputError beyond 2^62 picoseconds (53 days).
void check_time(const nn::TransformerConfig& model, const paper::MemoryOptions& options,
                const CostModel& machine);

}  // namespace fsdp::plan
