/// @file
/// @ingroup estimate
/// A run of the engine as the worksheet reads it.
#pragma once

#include "estimate/estimate_run.h"
#include "report/timeline.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// The second iteration of a run on the device fake: its bytes, and its times on the virtual clock.
class MeasuredStep {
 public:
  explicit MeasuredStep(const EstimatorConfig& config);

  std::int64_t parameters() const { return run_.parameters; }
  const IterationMemory& memory() const { return run_.iterations.at(1); }
  /// What the rank held at one state of a module's call.
  const Breakdown& at(const std::string& module, nn::CallState state) const;
  const Breakdown& peak_of_phase(const std::string& phase) const;
  /// By what travels for parameters and gradients, without the counters of the norm.
  std::int64_t received_bytes() const;
  std::int64_t reductions() const;  ///< how many collectives of gradients

  // Seconds:
  double step() const;
  double forward(const std::string& unit) const { return length(computation(unit, false)); }
  double backward(const std::string& unit) const { return length(computation(unit, true)); }
  /// Of the gather for a unit's forward, and of its reduction, on the channel.
  double gather(const std::string& unit) const;
  double reduction(const std::string& unit) const;
  /// From the beginning of the gather for the first unit's forward to the end of the last one's.
  double forward_of(const std::string& first, const std::string& last) const;
  /// From the beginning of the last unit's backward to the end of the first one's.
  double backward_of(const std::string& first, const std::string& last) const;
  /// Between the forward of one unit and the next, and between the beginnings of two backwards.
  double pause(const std::string& unit, const std::string& next) const;
  double backward_pace(const std::string& unit, const std::string& next) const;

 private:
  const report::Span& transfer(const std::string& unit, Phase phase) const;
  const report::Span& computation(const std::string& unit, bool is_backward) const;
  static double length(const report::Span& span);

  EstimateRun run_;
  std::vector<report::Span> spans_;  // of the second iteration
};

}  // namespace fsdp::estimate
