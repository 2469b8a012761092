/// @file
/// @ingroup estimate
/// The answer of an estimate, before its reasons: whether a training fits, and what would help.
#pragma once

#include "estimate/second_opinion.h"

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp::estimate {

struct Estimate;

/// What a card of 80 GB has, an H100 or an A100: 79.1 GiB, as CUDA reports it.
inline constexpr std::int64_t kCardBytes = 84'932'978'279;

struct Answer {
  std::int64_t active = 0;    ///< the peak of what is in use, in bytes
  std::int64_t reserved = 0;  ///< the peak of what the allocator has taken
  std::int64_t outside = 0;   ///< taken beside the allocator: CUDA's context, NCCL
  std::int64_t memory = kCardBytes;
  bool is_given = false;         ///< the memory was, and is no guess
  double margin = 0;             ///< to be left, as a share of what is needed
  std::optional<Remedy> remedy;  ///< none: it fits, or nothing was found

  std::int64_t needed() const { return reserved + outside; }
  /// With the margin.
  bool fits() const {
    return static_cast<double>(needed()) * (1 + margin) <= static_cast<double>(memory);
  }
};

/// "llama3_8b, sequences of 2048 tokens: fsdp over 8 ranks, reshard always, …"
std::string training_of(const EstimatorConfig& config);

/// @param run of the same configuration
Answer answer_of(const EstimatorConfig& config, const EstimateRun& run);

/// Seven lines.
std::string to_text(const Answer& answer, const Estimate& estimate);

}  // namespace fsdp::estimate
