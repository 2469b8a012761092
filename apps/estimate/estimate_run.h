/// @file
/// @ingroup estimate
/// Two iterations of the real engine on one rank, with their memory, and of what sizes they may be.
#pragma once

#include "base/clock.h"
#include "estimate/estimator_config.h"
#include "estimate/iteration_table.h"
#include "report/run_record.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// The first makes the optimizer's state, and the order by which units are prefetched; all after
/// the second are like it.
inline constexpr int kIterations = 2;

/// What was made when, in the order of torchtitan's estimator.
struct Stage {
  std::string name;          ///< group, model, tracker, inputs
  std::int64_t held = 0;     ///< bytes of the device afterwards
  std::int64_t highest = 0;  ///< at any time so far
};

/// What the allocator counted, apart from the tracker.
struct AllocatorCounts {
  std::int64_t peak_active = 0;    ///< bytes in use at one time, with `scratch`
  std::int64_t peak_reserved = 0;  ///< bytes taken from the device, in use or kept, with `scratch`
  std::int64_t retries = 0;        ///< requests beyond the limit
  std::int64_t scratch = 0;        ///< the arenas of the kernels' threads, allocated once, apart
  std::int64_t fragmentation() const { return peak_reserved - peak_active; }
};

/// What one unit (or nobody) holds of one kind.
struct Holding {
  std::string unit;
  MemoryKind kind{};
  std::int64_t nbytes = 0;
};

struct EstimateRun {
  std::vector<Stage> stages;
  std::vector<IterationMemory> iterations;  ///< at least one, which may have ended early
  AllocatorCounts allocator;
  report::RunRecord record;     ///< both iterations, for the curve
  std::int64_t parameters = 0;  ///< of the model, adapters included
  std::string out_of_memory;    ///< the error, if the device's memory was not enough
  /// When each iteration had ended, in picoseconds of the record; empty in real mode.
  std::vector<std::int64_t> ended;

  int peak_iteration() const;  ///< the first with the highest peak
  std::int64_t tracker_max() const;
  double tracker_accuracy() const;  ///< tracker_max() / allocator.peak_active
};

/// The machine behind the time axis of the curve: the planner's default, with a bus of 50 GB/s.
CostModel machine();

/// Runs the training that `config` describes, on the device `fake` in one process, or (is_real) on
/// real ranks: threads of this process, or the processes that a launcher has started. Then all of
/// these call this, and the first has the result. Both ways drive the strategy, the optimizer, the
/// clip and the schedule of unshard-train.
/// @throws InputError if the machine cannot hold the real ranks.
EstimateRun run_estimate(const EstimatorConfig& config);

/// The same of a framework that does not run here: a walk through both iterations, in `run`.
void run_on_paper(const EstimatorConfig& config, EstimateRun& run);

/// The bytes of a card that PyTorch takes: its allocator, and what is outside of it.
std::int64_t needed_bytes(const nn::TransformerConfig& model, const paper::MemoryOptions& options);

/// What was held at the highest point of a rank's log, largest first.
/// @param last  what the entry that made the peak allocated
std::vector<Holding> holdings_at_peak(const report::RunRecord& record, Holding& last);

/// Bytes of a rank, and picoseconds of two iterations on the modeled machine, are counted exactly
/// below 2^62. The largest terms of both are bounded here in real numbers, which cannot overflow.
/// And the record of the two iterations grows with every layer of every micro-batch.
/// @throws InputError naming the key that is largest, with the bound.
void check_sizes(const config::TrainConfig& config);

}  // namespace fsdp::estimate
