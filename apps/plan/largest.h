/// @file
/// @ingroup plan
/// The largest micro-batch that fits.
#pragma once

#include "plan/evaluator.h"

#include <cstdint>
#include <string>

namespace fsdp::plan {

struct LargestBatch {
  std::int64_t batch = 0;   ///< B, sequences of a micro-batch; 0 = not even one
  std::int64_t nbytes = 0;  ///< of a device, with it (B = 0: with one)
  std::int64_t over = 0;    ///< with one sequence more
};

/// By bisection over the peak in use, which only grows with B. What an allocator keeps beside it
/// does not: from there, B is counted down.
/// @param memory bytes of a device
/// @throws InputError if a billion sequences fit.
LargestBatch largest_batch(const Evaluator& evaluator, paper::MemoryOptions options,
                           std::int64_t memory);

std::string largest_text(const LargestBatch& found, const paper::MemoryOptions& options,
                         std::int64_t memory);

}  // namespace fsdp::plan
