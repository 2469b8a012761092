/// @file
/// @ingroup planner
/// What one configuration takes, in memory and in time.
#pragma once

#include "base/clock.h"
#include "device/memory_tracker.h"
#include "estimate/kernel_times.h"
#include "estimate/memory_options.h"
#include "estimate/paper_clock.h"
#include "nn/transformer.h"

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace fsdp::planner {

/// A configuration with its peaks and the time of a step (not the first).
struct Outcome {
  estimate::MemoryOptions options;  ///< its rank is the one with the highest peak
  int busiest_rank = 0;             ///< the one that owns most, whose time counts
  Breakdown device;
  Breakdown host;  ///< what is offloaded
  estimate::StepTime time;

  std::int64_t memory() const { return device.total(); }
  std::int64_t step() const { return time.total(); }
};

/// Asks the two formulas. Of ranks that differ (ZeRO-1 and ZeRO-2), the memory is that of the rank
/// with the highest peak, and the time that of the rank that owns most.
class Evaluator {
 public:
  Evaluator(const nn::TransformerConfig& model, const CostModel& machine)
      : model_(model), machine_(machine) {}

  // Each @throws InputError if bytes or picoseconds do not fit 64 bits.

  Outcome evaluate(const estimate::MemoryOptions& options);
  /// Only the memory; the time is zero.
  Outcome without_time(estimate::MemoryOptions options);
  void add_time(Outcome& outcome);
  /// The peak of the device alone.
  Breakdown memory(estimate::MemoryOptions options);
  const nn::TransformerConfig& model() const { return model_; }
  const CostModel& machine() const { return machine_; }

 private:
  const estimate::KernelTimes& kernels_for(const estimate::MemoryOptions& options);
  void choose_rank(estimate::MemoryOptions& options) const;
  int busiest_rank(const estimate::MemoryOptions& options);

  nn::TransformerConfig model_;
  CostModel machine_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType>, estimate::KernelTimes> kernels_;
  std::map<std::pair<int, optim::Partition>, int> busiest_;  // rank, by W
};

}  // namespace fsdp::planner
