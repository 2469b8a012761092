/// @file
/// @ingroup plan
/// The largest micro-batch that fits.
#pragma once

#include "plan/evaluator.h"

#include <cstdint>
#include <string>

namespace fsdp::plan {

struct LargestBatch {
  std::int64_t batch = 0;  ///< B, sequences of a micro-batch; 0 = not even one
  Breakdown peak;          ///< with it (B = 0: with one)
  Breakdown over;          ///< with one sequence more
};

/// By bisection over the formula, whose peak only grows with B. @param memory bytes of a device
/// @throws InputError if a billion sequences fit.
LargestBatch largest_batch(Evaluator& evaluator, paper::MemoryOptions options, std::int64_t memory);

/// @param beside bytes of the memory that the peak does not count
std::string largest_text(const LargestBatch& found, const paper::MemoryOptions& options,
                         std::int64_t memory, std::int64_t beside = 0);

}  // namespace fsdp::plan
