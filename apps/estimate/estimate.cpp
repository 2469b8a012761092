#include "estimate/estimate.h"

#include "estimate/estimate_run.h"

#include <sys/resource.h>

#include <utility>

namespace fsdp::estimate {
namespace {

std::int64_t resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-union-access): glibc hides the field in one
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

Estimate make_estimate(EstimatorConfig config) {
  check_sizes(config.train);
  Estimate estimate;
  estimate.config = std::move(config);
  estimate.run = run_estimate(estimate.config);
  estimate.answer = answer_of(estimate.config, estimate.run);
  estimate.opinion = second_opinion(estimate.config, estimate.run);
  estimate.savings = savings_of(estimate.config);
  estimate.at_peak = holdings_at_peak(estimate.run.record, estimate.last);
  estimate.replays =
      replay_peak(estimate.run.record.ranks.at(0).memory).total() == estimate.run.tracker_max();
  estimate.resident_bytes = resident_bytes();
  return estimate;
}

}  // namespace fsdp::estimate
