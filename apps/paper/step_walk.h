/// @file
/// @ingroup paper
/// StepWalk: one rank's training walked through on paper, event by event.
#pragma once

#include "paper/books.h"
#include "paper/formats.h"
#include "paper/memory_formula.h"
#include "paper/memory_options.h"
#include "paper/model_shape.h"
#include "paper/parts_walk.h"
#include "paper/schedule.h"
#include "paper/segment_walk.h"
#include "paper/segments.h"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::paper {

/// The rules of training a second time and much shorter, without tensors, hooks or ranks: where a
/// unit's bytes come and go, what is computed when, which collective starts, and who waits for it.
/// Behind MemoryFormula (bytes), TimeFormula (clock) and wire_bytes() (traffic).
class StepWalk {
 public:
  /// @throws Error if the options do not fit together
  StepWalk(const nn::TransformerConfig& config, const MemoryOptions& options, Books& books);
  /// @param schedule null: that of the options
  StepWalk(ModelShape shape, TapedModel tape, MemoryOptions options, Books& books,
           std::unique_ptr<Schedule> schedule = nullptr);
  StepWalk(const StepWalk&) = delete;
  StepWalk& operator=(const StepWalk&) = delete;

  /// The next step; the first one differs (no order to prefetch by yet, no optimizer state).
  StepMemory next_step();
  /// The most that is held by forwards without a tape. In place of next_step(), never beside it.
  Breakdown evaluation_peak();
  /// Off: no snapshots, and blocks and micro-steps that are alike are walked once. For the bytes,
  /// two micro-steps are alike if as many sums of gradients are held before and after both, and
  /// around the two that precede them: their last gradients may still travel. For the clock, if
  /// they take the same additions of leaves and nothing is under way when they begin.
  void set_recording(bool on) { records_ = on; }
  /// Forwards and backwards of segments so far, without those that were passed over.
  std::int64_t segments_walked() const { return segments_walked_; }

 private:
  enum class State { sharded, in_flight, unsharded };
  struct UnitLife {
    State state = State::sharded;
    bool has_part = false;        // within(s): 1/s kept since forward
    bool has_cast = false;        // mixed precision, offload: a copy of the shard is being gathered
    std::int64_t gather_end = 0;  // of the last of its gathers
  };
  struct Unit : UnitLife {
    explicit Unit(UnitShape of) : shape(std::move(of)) {}
    UnitShape shape;
    std::size_t forward_next = 0;  // the place after its own in the order of gathers, or 0
    std::size_t backward_next = 0;
  };
  /// Of their gathers, by place.
  using Order = std::vector<int>;
  /// A unit's shards on their way.
  struct Travel {
    Unit* unit = nullptr;
    std::int64_t end = 0;
    int leaf = 0;  // of the sums, that they will be
  };
  /// What tells micro-steps apart: sums held around the last four; additions of a leaf.
  using Likeness = std::array<int, 7>;
  struct Known {
    int m;
    int leaf_across, leaf_copied;
    Books::Change change;
  };

  /// What a block leaves to the next one, and the books when it does.
  using Surroundings = std::vector<std::int64_t>;
  struct Passed {
    Surroundings found;
    Books::Change books;
  };

  void micro_step_unless_known(int m, StepMemory& memory);
  bool may_be_known(int m) const;
  Likeness likeness(int m) const;
  void micro_step(int m, StepMemory& step);
  void forward(MicroStepMemory& memory);
  void forward_segment(std::size_t segment, MicroStepMemory& memory);
  void backward(int m, MicroStepMemory& memory);
  void backward_segment(std::size_t segment, int m, MicroStepMemory& memory);
  void forward_again(std::size_t segment, MicroStepMemory& memory);
  void compute_backward(std::size_t segment, int m);
  void finish_step();
  void finish_gradients();
  void add_norm();
  void update();

  // A unit, in the order of its life.
  void start_unshard(Unit& unit);
  void finish_unshard(Unit& unit);
  void reshard(Unit& unit);
  void pre_forward(Unit* unit);
  void post_forward(Unit* unit, bool has_tape);
  void pre_backward(Unit* unit);
  void post_backward(Unit* unit, int m);
  void start_reduce(Unit& unit, int m);
  void finish_reduce();
  void finish_across();
  void finish_copies();
  void start_ahead(const Unit& unit, bool is_backward);
  void gather_apart(Unit& unit);
  void drop_gathered(Unit& unit);
  void copy_out(Unit& unit);
  void drop_lingering();
  void reduce_apart(Unit& unit, int m);
  void drop_reduced();
  void drop_cast(Unit& unit);
  void drop_part(Unit& unit);

  void make_segment_walks();

  void find_alike_blocks();
  Surroundings surroundings(std::size_t segment, int direction) const;
  /// To be called after each block, forward (direction 1) or backward (-1).
  /// @return how many of the next ones have happened too, because they find what this one found
  std::size_t pass_over(std::size_t segment, int direction, Passed& passed);
  bool follows(const Travel& travel, int direction) const;
  void move_units(std::size_t segment, int by);
  /// Of units whose life a unit may have changed, in one direction.
  int reach(int direction) const { return schedule_->reach(direction < 0).value_or(0) + 1; }

  const SegmentTimes& times_of(std::size_t segment) const {
    return books_.times_of(segment, segments_.size());
  }
  void snap(const std::string& module, nn::CallState state, MicroStepMemory& memory) const;
  void begin_phase(const char* name, int micro_step = -1) const;
  /// What a segment does while it computes for so long; `points` are all of a pass.
  void walk_section(std::size_t segment, const std::vector<MemoryPoint>& points,
                    const SegmentWalk::Section& section, bool is_backward,
                    const std::vector<std::int64_t>& at, std::int64_t done);
  void walk_forward(std::size_t segment, const std::vector<MemoryPoint>& points,
                    const SegmentWalk::Sections& sections, bool is_backward,
                    const std::vector<std::int64_t>& at);
  const std::string& name_of(std::size_t segment) const;
  Unit* unit_at(int index);
  int place_of(const Unit& unit) const { return static_cast<int>(&unit - units_.data()); }
  Unit* unit_of(std::size_t segment) { return unit_at(shape_.unit_of_segment[segment]); }
  bool is_around(std::size_t segment) const {
    return segments_[segment]->is_checkpointed && recipe_.checkpointing == Checkpointing::around;
  }
  std::int64_t part_of(const FlatShape& flat) const {
    return formats_.param * (flat.padded() / recipe_.sharding.reshard_after_forward.ranks);
  }
  /// Bytes of a shard.
  std::int64_t shard_of(const FlatShape& flat) const {
    return (flat.has_master ? kFloatBytes : formats_.param) * flat.shard();
  }
  /// Elements of this rank's shard that are not padding.
  std::int64_t valid(const FlatShape& flat) const;
  /// The shard is copied before it is gathered.
  bool casts(const FlatShape& flat) const {
    return recipe_.sharding.offload.params || (formats_.casts_params && flat.has_master);
  }
  /// What is reduced: with another format a copy, under no_sync the sum of several.
  MemoryKind kind_of_reduced() const;
  /// Where shards and optimizer state are, and where gradients are summed.
  MemorySpace shards() const { return space_of(recipe_.sharding.offload.params); }
  MemorySpace sums() const { return space_of(recipe_.sharding.offload.grads); }
  static MemorySpace space_of(bool is_offloaded) {
    return is_offloaded ? MemorySpace::host : MemorySpace::device;
  }

  const MemoryOptions options_;
  const optim::Recipe& recipe_ = options_.recipe;
  Books& books_;
  std::unique_ptr<Schedule> schedule_;
  bool has_buffers_ = schedule_->has_buffers();
  Formats formats_;
  ModelShape shape_;
  TapedModel tape_;
  const Segments& segments_ = tape_.segments;
  std::vector<const SegmentWalk*> walks_;  // of the segments
  std::map<const SegmentMemory*, SegmentWalk> distinct_walks_;
  SegmentWalk loss_;
  std::vector<Unit> units_;
  std::size_t last_alike_ = 1;        // segments from 1 to here are alike
  std::unique_ptr<PartsWalk> whole_;  // what belongs to no unit
  GroupShape shard_group_, subgroup_, replica_group_;
  Order forward_order_;   // empty before the first forward has ended
  Order backward_order_;  // without the unit that is kept
  int in_flight_ = 0;
  std::int64_t lingering_ = 0;     // bytes of the last gather's buffer, with has_buffers(),
  const Unit* lingers_ = nullptr;  // and whose it is
  Travel reducing_;
  Travel across_;  // being summed over the replicas
  Travel copied_;  // being copied to the host
  std::map<Likeness, Known> known_;
  bool has_state_ = false;
  bool counts_gradients_ = false;  // of weights, one by one
  bool has_tape_ = true;
  bool is_forward_ = false;
  bool records_ = true;
  std::int64_t segments_walked_ = 0;
};

}  // namespace fsdp::paper
