/// @file
/// @ingroup estimate
/// IterationTable: what a training step holds, phase by phase and module by module.
#pragma once

#include "device/memory_tracker.h"
#include "nn/module.h"
#include "paper/memory_formula.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::estimate {

/// The columns of the table by module: the eight states of a call, then its two local peaks.
inline constexpr std::size_t kPeakForward = nn::kCallStates;
inline constexpr std::size_t kPeakBackward = nn::kCallStates + 1;
inline constexpr std::size_t kColumns = nn::kCallStates + 2;
std::string_view name_of_column(std::size_t column);  ///< "BEF_PRE_FW", …, "PEAK_FW", "PEAK_BW"

/// What the rank held in all at the states of one module's call, in bytes. A state has the values
/// of the last micro-step; a peak is the highest of all micro-steps.
struct ModuleMemory {
  std::string name;      ///< its path; "root" for the whole model
  bool is_unit = false;  ///< the whole model, the embedding, a block, or the head
  std::array<Breakdown, kColumns> columns;
  std::array<bool, kColumns> is_seen{};  ///< a frozen module has no backward
};

/// A stretch of an iteration and its peak.
struct PhaseMemory {
  std::string name;          ///< inputs, forward, backward, gradients, clip, optimizer
  int micro_step = -1;       ///< of forward and backward
  Breakdown peak;            ///< the first of equals
  std::string module;        ///< the innermost module that was active at the peak; "" = none
  bool is_backward = false;  ///< that module's backward was running
};

/// One iteration on one rank, in bytes.
struct IterationMemory {
  Breakdown before;      ///< held when it began
  Breakdown peak;        ///< as the tracker counted it
  Breakdown after;       ///< held when it had ended
  Breakdown highest;     ///< the highest of each kind by itself; they need not come together
  Breakdown host_peak;   ///< of the memory of the host, with offload
  Breakdown host_after;  ///< likewise
  std::optional<double> learning_rate;  ///< of its step; none if memory ran out before
  std::vector<PhaseMemory> phases;      ///< in order
  std::vector<ModuleMemory> modules;    ///< in the order of their first call
  paper::StepMemory as_formula;         ///< the same in the terms of MemoryFormula

  const PhaseMemory& highest_phase() const;
};

/// Fills one IterationMemory after the other, from what it is told in the order of time. `now` is
/// what is held at that moment.
///
/// A module's local peak counts while its call is active: from before_pre_forward to
/// after_post_forward, and from before_pre_backward to after_post_backward. Nothing is sampled: a
/// spike between two states is in it.
class IterationTable {
 public:
  void begin_iteration(const Breakdown& now);
  void begin_phase(std::string name, int micro_step, const Breakdown& now);
  /// A module's row, in the order of first calls: its place. New ones in each iteration.
  std::size_t add_module(std::string name, bool is_unit);
  void add_state(std::size_t module, nn::CallState state, const Breakdown& now);
  /// What is held is more than before, in all or of one kind. @param total now.total()
  void add_growth(const Breakdown& now, std::int64_t total);
  /// What was told since begin_iteration(), without the host's memory.
  /// @param peak of the same time
  IterationMemory end_iteration(const Breakdown& peak, const Breakdown& now);

 private:
  struct Frame {
    std::size_t module;  // index into modules
    std::size_t column;  // kPeakForward or kPeakBackward
    std::int64_t total;
    Breakdown peak;
  };
  void close_frame(std::size_t module, std::size_t column);

  IterationMemory now_;
  std::vector<Frame> frames_;  // calls that are open
  std::int64_t phase_total_ = 0;
};

}  // namespace fsdp::estimate
