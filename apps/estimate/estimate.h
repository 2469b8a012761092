/// @file
/// @ingroup estimate
/// An estimate with everything that is said about it.
#pragma once

#include "estimate/answer.h"
#include "estimate/command_line.h"
#include "estimate/estimate_run.h"
#include "estimate/second_opinion.h"

#include <string>
#include <vector>

namespace fsdp::estimate {

struct Estimate {
  EstimatorConfig config;
  EstimateRun run;
  Answer answer;
  SecondOpinion opinion;
  std::vector<Saving> savings;      ///< the largest first
  std::vector<Holding> at_peak;     ///< what was held then, the largest first
  Holding last;                     ///< the allocation that made the peak
  bool replays = false;             ///< the log of events has the same peak as the tracker
  std::int64_t resident_bytes = 0;  ///< the highest resident memory of this process

  /// Estimate and formula agree, and the memory that was given is enough.
  bool is_good() const {
    return opinion.difference.empty() && run.out_of_memory.empty() &&
           (answer.fits() || !answer.is_given);
  }
};

/// Runs it and asks the formula. @throws InputError for what is too large to count.
Estimate make_estimate(EstimatorConfig config);

/// How much a text says.
enum class Detail { answer, few_modules, all_modules };
std::string to_text(const Estimate& estimate, Detail detail);
/// The schema is in docs/estimator.md. All numbers are bytes unless they say otherwise.
std::string to_json(const Estimate& estimate);
/// One page that needs nothing else: the memory over time, and the text.
std::string to_html(const Estimate& estimate);

}  // namespace fsdp::estimate
