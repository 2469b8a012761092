/// @file
/// @ingroup estimate
/// MemoryInstrument: fills the table of a training that runs.
#pragma once

#include "device/memory_tracker.h"
#include "estimate/iteration_table.h"
#include "nn/transformer.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace fsdp::estimate {

/// Observes one rank's modules and its memory while it lives. The training computes the same, and
/// holds the same, with and without it.
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
  std::size_t place_of(const nn::Module& module);

  MemoryTracker& tracker_;
  nn::CallObserverScope scope_;
  std::map<const nn::Module*, std::string> units_;
  IterationTable table_;
  std::map<const nn::Module*, std::size_t> places_;  // in the table
};

}  // namespace fsdp::estimate
