/// @file
/// @ingroup estimate
/// What the formula says to an estimate, and what it would say to a changed configuration.
#pragma once

#include "estimate/estimate_run.h"
#include "estimate/estimator_config.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// MemoryFormula computes the same numbers by different code: a step on paper, without tensors.
struct SecondOpinion {
  std::vector<Breakdown> peaks;       ///< of the iterations, on the device
  std::vector<Breakdown> host_peaks;  ///< with offload; empty without
  std::size_t compared = 0;           ///< snapshots, phases and peaks that were compared
  std::string difference;             ///< the first one, as a sentence; "" = all are equal
  /// False if sizes were rounded up, as a card does, or memory ran out: then there is nothing to
  /// compare with.
  bool is_comparable = true;
};

SecondOpinion second_opinion(const EstimatorConfig& config, const EstimateRun& run);

/// One change of the configuration, and the peak it leads to.
struct Saving {
  std::string change;      ///< "--training.activation_checkpoint block"
  std::string meaning;     ///< "blocks compute their forward again in backward"
  std::int64_t peak = 0;   ///< bytes
  std::int64_t saved = 0;  ///< bytes
};

/// Every single change that makes the peak lower, by formula; the one that saves most first.
std::vector<Saving> savings_of(const EstimatorConfig& config);
/// Changes of the configuration with which a training fits.
struct Remedy {
  std::string options;        ///< " --training.activation_checkpoint block"
  std::int64_t peak = 0;      ///< bytes in use, with them
  std::int64_t reserved = 0;  ///< bytes that the allocator has taken then
};

/// The cheapest change, or pair of changes, with which the allocator takes no more than `memory`
/// bytes. What changes the training itself (its data, what is trained, the optimizer) is none.
/// @param kept what the allocator of our engine keeps beside what is in use, with or without them
std::optional<Remedy> remedy_of(const EstimatorConfig& config, std::int64_t memory,
                                std::int64_t kept);

}  // namespace fsdp::estimate
