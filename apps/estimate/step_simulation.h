/// @file
/// @ingroup estimate
/// StepSimulation: one rank's training walked through on paper, event by event.
#pragma once

#include "estimate/activation_table.h"
#include "estimate/formats.h"
#include "estimate/ledger.h"
#include "estimate/memory_formula.h"
#include "estimate/memory_options.h"
#include "estimate/model_shape.h"
#include "estimate/whole_gradients.h"

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace fsdp::estimate {

/// The places at which a unit's bytes come, change their name, or go: the rules of FSDP, written a
/// second time and much shorter, without tensors, hooks or ranks. Behind MemoryFormula.
class StepSimulation {
 public:
  /// `segments`: in forward order; of the table, only the loss and the data.
  StepSimulation(ModelShape shape, Segments segments, ActivationTable table, MemoryOptions options,
                 MemorySpace space = MemorySpace::device);

  /// The next step; the first one differs (no order to prefetch by yet, no optimizer state).
  StepMemory next_step();
  /// The most that is held by forwards without a tape. In place of next_step(), never beside it.
  Breakdown evaluation_peak();
  const Breakdown& held() const { return reported_.now(); }
  /// Off: only peaks are written down, no snapshots, and micro-steps that are alike count once. Two
  /// are alike if as many sums of gradients are held before and after both, and around the two
  /// micro-steps that precede them: their last gradients may still travel.
  void set_recording(bool on) { records_ = on; }
  /// ZeRO: from here on, counts what each rank owns for that rank, and not what options.rank owns.
  void count_ranks(RankPeaks& ranks) { ledger_.count_ranks(ranks); }

 private:
  enum class State { sharded, in_flight, unsharded };
  struct Unit {
    UnitShape shape;
    State state = State::sharded;
    bool has_part = false;  // within(s): 1/s kept since forward
    bool has_cast = false;  // mixed precision, offload: a copy of the shard is being gathered
    std::size_t forward_next = 0;  // the place after its own in the order of gathers, or 0
    std::size_t backward_next = 0;
  };
  /// Of their gathers.
  using Order = std::vector<Unit*>;

  /// How many sums are held after each of the micro-steps m - 3 to m.
  using SumsAround = std::array<int, 4>;
  /// What a micro-step leaves changed.
  struct Change {
    int m;
    int leaf_across;
    int leaf_copied;
    Breakdown device;
    Breakdown host;
  };

  void walk_unless_known(int m, StepMemory& memory, std::map<SumsAround, Change>& known);
  bool may_be_known(int m) const;
  MicroStepMemory micro_step(int m);
  void forward(MicroStepMemory& memory);
  void backward(int m, MicroStepMemory& memory);
  Breakdown finish_step();

  // A unit, in the order of its life.
  void start_unshard(Unit& unit);
  void finish_unshard(Unit& unit);
  void reshard(Unit& unit);
  void pre_forward(Unit* unit);
  void post_forward(Unit* unit, bool has_tape);
  void forward_again(std::size_t segment, MicroStepMemory& memory);
  void pre_backward(Unit* unit);
  void post_backward(Unit* unit, int m);
  void start_reduce(Unit& unit, int m);
  void finish_reduce(int m);
  void finish_across();
  void finish_copies();
  void start_ahead(const Order& order, std::size_t next);

  void drop_cast(Unit& unit);
  void drop_part(Unit& unit);
  /// Of a unit's gradient while it is reduced.
  MemoryKind kind_of_reduced() const;
  void walk(const std::vector<MemoryPoint>& points);
  void walk_backward(std::size_t segment, int m);
  void advance(const MemoryPoint& from, const MemoryPoint& to);
  void snap(const std::string& module, nn::CallState state, MicroStepMemory& memory) const;
  Unit* unit_at(int index);
  bool is_around(const SegmentMemory& segment) const {
    return segment.is_checkpointed && options_.checkpointing == Checkpointing::around;
  }
  /// Whole gradients are made in buckets, not one by one.
  bool has_buckets() const {
    return options_.placement != Placement::single && options_.placement != Placement::zero2;
  }
  std::int64_t part_of(const FlatShape& flat) const;
  /// Bytes of a shard.
  std::int64_t shard_of(const FlatShape& flat) const;
  /// The shard is copied before it is gathered.
  bool casts(const FlatShape& flat) const {
    return options_.offload.params || (formats_.casts_params && flat.has_master);
  }
  /// Where shards and optimizer state are, and where gradients are summed.
  Ledger& shards() { return options_.offload.params ? host_ : ledger_; }
  Ledger& sums() { return options_.offload.grads ? host_ : ledger_; }

  ModelShape shape_;
  ActivationTable table_;
  MemoryOptions options_;
  Formats formats_;
  std::vector<Unit> units_;
  Segments segments_;
  Ledger ledger_;  // of the device
  Ledger host_;
  Ledger& reported_;
  WholeGradients whole_;
  Order forward_order_;   // empty before the first forward has ended
  Order backward_order_;  // without the unit that is kept
  int in_flight_ = 0;
  Unit* reducing_ = nullptr;
  Unit* across_ = nullptr;  // whose shards are being summed over the replicas,
  int leaf_across_ = 0;     // as this leaf of their sums
  Unit* copied_ = nullptr;  // likewise, whose shards are being copied to the host
  int leaf_copied_ = 0;
  bool has_state_ = false;
  bool has_tape_ = true;
  bool records_ = true;
};

/// Of this training. @throws Error if its options do not fit together
StepSimulation simulation_of(const nn::TransformerConfig& config, const MemoryOptions& options,
                             MemorySpace space = MemorySpace::device);

}  // namespace fsdp::estimate
