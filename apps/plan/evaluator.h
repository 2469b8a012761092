/// @file
/// @ingroup plan
/// What one configuration takes, in memory and in time; and whether 64 bits can count it.
#pragma once

#include "base/breakdown.h"
#include "base/clock.h"
#include "nn/transformer_config.h"
#include "paper/kernel_times.h"
#include "paper/memory_options.h"
#include "paper/paper_clock.h"

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

namespace fsdp::plan {

/// A configuration with its peaks and the time of a step (not the first).
struct Outcome {
  paper::MemoryOptions options;  ///< its rank is the one with the highest peak of the device
  int busiest_rank = 0;          ///< the one that owns most, whose time counts
  Breakdown device;
  Breakdown host;  ///< what is offloaded, on the rank that holds most of it
  paper::StepTime time;

  std::int64_t beside = 0;  ///< bytes of the device that are taken and not in use at its peak

  std::int64_t memory() const { return device.total() + beside; }
  std::int64_t step() const { return time.total(); }
};

/// The bytes of a device that a training takes, where they are more than its peak of bytes in use.
using Needed = std::function<std::int64_t(const nn::TransformerConfig& model,
                                          const paper::MemoryOptions& options)>;

/// Asks the two formulas. Of ranks that differ (ZeRO-1 and ZeRO-2), the memory is that of the rank
/// with the highest peak, and the time that of the rank that owns most.
class Evaluator {
 public:
  /// @param needed null: the peak. Threads may call it at once
  Evaluator(const nn::TransformerConfig& model, const CostModel& machine, Needed needed = {})
      : model_(model), machine_(machine), needed_(std::move(needed)) {}

  // Each @throws InputError if bytes or picoseconds do not fit 64 bits.

  Outcome evaluate(const paper::MemoryOptions& options);
  /// Only what is in use; `time` and `beside` are zero. Threads may call it at once.
  Outcome in_use(paper::MemoryOptions options) const;
  /// Whether more is taken than what is in use.
  bool knows_beside() const { return needed_ != nullptr; }
  /// Takes longer than in_use(). Of ZeRO-1 and ZeRO-2, also rank 0 is asked, whose estimate is the
  /// usual one. Threads may call it at once.
  void add_beside(Outcome& outcome) const;
  void add_time(Outcome& outcome);
  /// The peak of the device alone.
  Breakdown memory(paper::MemoryOptions options);
  const nn::TransformerConfig& model() const { return model_; }
  const CostModel& machine() const { return machine_; }

 private:
  const paper::KernelTimes& kernels_for(const paper::MemoryOptions& options);
  void choose_rank(paper::MemoryOptions& options,
                   paper::MemorySpace space = paper::MemorySpace::device) const;
  int busiest_rank(const paper::MemoryOptions& options);

  nn::TransformerConfig model_;
  CostModel machine_;
  Needed needed_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType, bool>, paper::KernelTimes> kernels_;
  std::map<std::pair<int, optim::Partition>, int> busiest_;  // rank, by W
};

/// Checks a rough count, with real numbers, of the memory of a rank.
/// @throws InputError beyond 2^62 bytes.
void check_bytes(const nn::TransformerConfig& model, const paper::MemoryOptions& options);

/// The same of the time of a step. @throws InputError beyond 2^62 picoseconds (53 days).
void check_time(const nn::TransformerConfig& model, const paper::MemoryOptions& options,
                const CostModel& machine);

}  // namespace fsdp::plan
