/// @file
/// @ingroup estimate
/// ShardedTiming: the steps of FSDP on paper, with their time.
#pragma once

#include "estimate/step_timing.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::estimate {

/// The order of StepSimulation, in time and not in bytes: what a unit computes, which collective is
/// issued when, and who waits for it.
class ShardedTiming : public StepTiming {
 public:
  ShardedTiming(const ModelShape& shape, const MemoryOptions& options, const CostModel& machine,
                const KernelTimes& kernels);
  StepTime next_step() override;

 private:
  bool is_repeatable() const override {
    return !forward_order_.empty() && options_.replicas == 1 && !options_.offload.grads;
  }
  enum class State { sharded, in_flight, unsharded };
  struct Unit {
    const UnitShape* shape;
    State state = State::sharded;
    bool has_part = false;        // within(s): 1/s kept since forward
    std::int64_t gather_end = 0;  // of the last of its gathers
    std::size_t forward_place;    // in the order of gathers
    std::size_t backward_place;   // kNowhere: kept
  };
  using Order = std::vector<Unit*>;
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  void forward();
  void backward(int m);
  void finish_step();

  void start_unshard(Unit& unit);
  void finish_unshard(Unit& unit);
  void reshard(Unit& unit);
  void start_ahead(const Order& order, std::size_t next);
  void pre_forward(Unit* unit);
  void post_forward(Unit* unit, bool has_tape);
  void forward_again(std::size_t segment);
  void pre_backward(Unit* unit);
  void post_backward(Unit* unit, int m);

  void start_reduce(Unit& unit, int m);
  void finish_reduce();
  void push_shards(const Unit& unit);
  void finish_across();
  void push_leaves(const Unit& unit);
  void finish_copies();

  Unit* unit_at(int index) {
    return index == ModelShape::kNoUnit ? nullptr : &units_[static_cast<std::size_t>(index)];
  }
  bool is_around(std::size_t segment) const {
    return is_checkpointed(segment) && options_.checkpointing == Checkpointing::around;
  }
  /// Elements of a shard that are not padding.
  std::int64_t valid(const FlatShape& flat) const;
  bool on_host() const { return options_.offload.params; }

  GroupShape shards_;
  GroupShape subgroup_;
  GroupShape replicas_;
  std::vector<Unit> units_;
  Order forward_order_;  // empty before the first forward has ended
  Order backward_order_;
  int in_flight_ = 0;
  const Unit* reducing_ = nullptr;
  std::int64_t reduce_end_ = 0;
  const Unit* across_ = nullptr;  // whose shards are being summed over the replicas
  std::int64_t across_end_ = 0;
  const Unit* copied_ = nullptr;  // whose shards are being copied to the host
  std::int64_t copy_end_ = 0;
  int leaf_ = 0;         // of the sums, that the unit being reduced will be,
  int leaf_across_ = 0;  // that being summed over the replicas,
  int leaf_copied_ = 0;  // and that being copied
  bool has_state_ = false;
};

}  // namespace fsdp::estimate
