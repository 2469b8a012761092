/// @file
/// @ingroup report
/// A short training, recorded: on the fake device with a virtual clock, where every picture is the
/// same every time, or for real, with ranks as threads.
#pragma once

#include "nn/transformer.h"
#include "optim/recipe.h"
#include "report/run_record.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fsdp::strategies {
class TrainedModel;
}

namespace fsdp::report {

using optim::Strategy;

struct ShortRun {
  std::string model_name = "tiny";
  nn::TransformerConfig model = nn::TransformerConfig::tiny();
  /// Without clipping. Offload only on the fake device.
  optim::Recipe recipe = {.strategy = Strategy::fsdp, .ranks = 2};
  std::int64_t batch = 1;  ///< sequences of a micro-batch
  /// Steps before the recording: the first makes the optimizer's state and the order of the units.
  int steps_before = 1;
  int steps = 1;  ///< recorded

  // What the caller does on each rank; empty: nothing.
  std::function<void(nn::TransformerLM&)> before_sharding = {};
  /// @return what must live as long as the run
  std::function<std::shared_ptr<void>(strategies::TrainedModel&)> after_sharding = {};
  std::function<void(strategies::TrainedModel&)> at_end = {};  ///< not recorded
};

/// The machine that is modeled unless another is asked for: 1 TFLOP/s, 500 GB/s of memory, a link
/// of 10 GB/s and 2 µs a hop, a bus of 25 GB/s to a host with 50 GB/s of memory.
inline constexpr CostModel kSmallMachine{.ps_per_flop = 1,
                                         .ps_per_byte = 2,
                                         .alpha_ps = 2'000'000,
                                         .link_ps_per_byte = 100,
                                         .bus_ps_per_byte = 40,
                                         .host_ps_per_byte = 20};

/// The same ranks in boxes of so many: between two boxes 1 GB/s, and 10 µs a hop.
constexpr CostModel in_boxes(int ranks_per_box) {
  CostModel machine = kSmallMachine;
  machine.ranks_per_box = ranks_per_box;
  machine.far_alpha_ps = 10'000'000;
  machine.far_link_ps_per_byte = 1000;
  return machine;
}

/// What a recorded rank received, and by how many collectives.
struct Traffic {
  std::int64_t nbytes = 0;
  std::int64_t collectives = 0;
};
Traffic traffic_of(const RankRecord& rank);

/// Names the parts of a model that would be units, so that a trace of a run that shards nothing can
/// be read beside one that does.
void name_units(nn::TransformerLM& model);

/// Ranks 0 … recorded-1 of the run, one after the other, each alone with a clock of its own: they
/// do the same, so none waits for another. @throws Error unless 1 <= recorded <= ranks.
RunRecord record_fake(const ShortRun& run, const CostModel& machine = kSmallMachine,
                      int recorded = 1);

/// All ranks at once, as threads of this process, on the CPU.
RunRecord record_threads(const ShortRun& run);

}  // namespace fsdp::report
