/// @file
/// @ingroup estimate
/// MemoryInstrument: what a training step holds, phase by phase and module by module.
#pragma once

#include "device/memory_tracker.h"
#include "nn/transformer.h"
#include "paper/memory_formula.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
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

/// Observes one rank's modules and its memory while it lives. The training computes the same, and
/// holds the same, with and without it.
///
/// A module's local peak counts while its call is active: from before_pre_forward to
/// after_post_forward, and from before_pre_backward to after_post_backward. Nothing is sampled: a
/// spike between two states is in it.
class MemoryInstrument : public nn::CallObserver, public GrowthObserver {
 public:
  /// Both must outlive it. @throws Error if another instrument observes this thread or tracker.
  MemoryInstrument(nn::TransformerLM& model, MemoryTracker& tracker);
  ~MemoryInstrument() override;
  MemoryInstrument(const MemoryInstrument&) = delete;
  MemoryInstrument& operator=(const MemoryInstrument&) = delete;

  void begin_iteration();
  void begin_phase(std::string name, int micro_step = -1);
  /// What was seen since begin_iteration(), without the host's memory.
  IterationMemory end_iteration();

  void on_state(nn::Module& module, nn::CallState state) override;
  void on_growth(const Breakdown& now, std::int64_t total) override;

 private:
  struct Frame {
    std::size_t module;  // index into modules_
    std::size_t column;  // kPeakForward or kPeakBackward
    std::int64_t total;
    Breakdown peak;
  };
  std::size_t index_of(const nn::Module& module);
  void close_frame(std::size_t module, std::size_t column);

  MemoryTracker& tracker_;
  nn::CallObserverScope scope_;
  std::map<const nn::Module*, std::string> units_;
  IterationMemory now_;
  std::map<const nn::Module*, std::size_t> places_;  // in now_.modules
  std::vector<Frame> frames_;                        // calls that are open
  std::int64_t phase_total_ = 0;
};

}  // namespace fsdp::estimate
