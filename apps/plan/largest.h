/// @file
/// @ingroup plan
/// The largest micro-batch that fits.
#pragma once

#include "plan/evaluator.h"

#include <cstdint>
#include <functional>
#include <string>

namespace fsdp::plan {

struct LargestBatch {
  std::int64_t batch = 0;   ///< B, sequences of a micro-batch; 0 = not even one
  std::int64_t nbytes = 0;  ///< of a device, with it (B = 0: with one)
  std::int64_t over = 0;    ///< with one sequence more
};

/// The bytes of a device that a training takes, where they are more than its peak.
using Needed = std::function<std::int64_t(const paper::MemoryOptions& options)>;

/// By bisection over the formula, whose peak only grows with B. @param memory bytes of a device
/// @param needed null: the peak
/// @throws InputError if a billion sequences fit.
LargestBatch largest_batch(Evaluator& evaluator, paper::MemoryOptions options, std::int64_t memory,
                           const Needed& needed = {});

std::string largest_text(const LargestBatch& found, const paper::MemoryOptions& options,
                         std::int64_t memory);

}  // namespace fsdp::plan
