/// @file
/// A training that really runs, measured with the tracker at the places MemoryFormula speaks of,
/// and with the trace of its collectives.
#pragma once

#include "base/clock.h"
#include "nn/transformer.h"
#include "paper/memory_formula.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::testing {

struct MemoryCase {
  nn::TransformerConfig model = nn::TransformerConfig::nano();
  paper::MemoryOptions options = {.recipe = {.strategy = optim::Strategy::fsdp}};
  int steps = 2;
  bool records = true;          ///< snapshots too, not only peaks
  bool is_fake = false;         ///< one rank, on the device that counts bytes and holds none
  std::size_t granularity = 1;  ///< fake: sizes are rounded up to it
  Device device = kCpu;  ///< that all ranks share; on CUDA, each block is an allocation of its own
  std::optional<CostModel> machine = {};  ///< fake: a virtual clock runs
  std::size_t limit = 0;  ///< bytes that the allocator of the device has; 0 = no limit
  paper::MemorySpace space = paper::MemorySpace::device;  ///< whose bytes are compared
};

/// What one rank measured.
struct MeasuredMemory {
  Breakdown before;
  std::vector<paper::StepMemory> steps;
  std::vector<std::int64_t> received;  ///< bytes, in each step
  std::vector<std::int64_t> times;     ///< picoseconds of each step, if a virtual clock ran
};

/// Runs the training on as many ranks as the recipe says; one result per rank.
std::vector<MeasuredMemory> measure(const MemoryCase& test_case);

/// The first difference between the memory that was measured and the formula, as a sentence; "" if
/// none.
std::string difference(const MeasuredMemory& measured, const paper::MemoryFormula& formula);

/// The first difference between two measurements.
std::string difference(const MeasuredMemory& measured, const MeasuredMemory& expected);

/// measure() and difference() for all ranks, and wire_bytes(): the first difference of any rank.
/// With offload, of the device and of its host, whatever test_case.space says.
std::string difference(const MemoryCase& test_case);

/// "W 4, reshard 2, depth 1, M 3, L 1, tied, …"
std::string describe(const MemoryCase& test_case);

/// Writes down what is held at the eight states of the modules it knows by name.
class StateRecorder : public nn::CallObserver {
 public:
  /// What `tracker` counts.
  StateRecorder(nn::TransformerLM& model, const MemoryTracker& tracker);
  void on_state(nn::Module& module, nn::CallState state) override;
  /// What was recorded since the last call.
  std::vector<paper::MemorySnapshot> take();

 private:
  std::map<const nn::Module*, std::string> names_;
  const MemoryTracker& tracker_;
  std::vector<paper::MemorySnapshot> snapshots_;
};

/// V 37, d 20, L 3, H 10 over 5 key/value heads, F 51, T 7: no size is a power of two, and W
/// divides hardly any.
nn::TransformerConfig odd_model();
/// Freezes all parameters but those.
void train_only(MemoryCase& test_case, const std::function<bool(const std::string& path)>& trains);
/// AdamW with 2, SGD with momentum, or SGD without.
void set_states(MemoryCase& test_case, int optimizer_states);
/// Three micro-steps of the odd model, with clipping, small buckets and odd sizes everywhere.
MemoryCase odd_case(optim::Strategy placement, int world_size);
/// Only the fake device has room for it.
nn::TransformerConfig llama2_7b();

}  // namespace fsdp::testing
