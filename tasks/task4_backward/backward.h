/// @file
/// @ingroup task4
/// Task 4: the backward pass: gradients are written into the flat vector, summed over the ranks,
/// and kept as shards.
#pragma once

#include "comm/process_group.h"
#include "optim/gradient_engine.h"
#include "optim/shard_sums.h"
#include "task3_forward/forward.h"
#include "tensor/tree_sum.h"

#include <cstdint>
#include <memory>
#include <vector>

// As a backward.cpp from an earlier kit calls them.
namespace fsdp::parallel {
using optim::HostCopies;
using optim::ShardSums;
}  // namespace fsdp::parallel

namespace fsdp {

/// Turns every unit's backward into sharded gradients.
///
///     unit k+1   … compute | free params, reduce-scatter →→→→ |
///     unit k       gather →→ |         compute          | free params, finish k+1, reduce …
///
///     full_grad (P) --reduce-scatter--> leaf (n) --TreeAccumulator--> shard_grad (n)
///                    REDUCE_SCATTER      SHARDED_GRAD
///
/// At most two full gradients exist at a time: that of the unit that computes, and the one being
/// reduced. The order of addition is canonical (tensor/tree_sum.h): ranks first, then micro-steps.
/// With L > 1 (no_sync), L micro-steps are added first, in full vectors, and then the ranks.
class GradientReducer {
 public:
  /// The record of one trainable FlatParameter.
  struct FlatGradient {
    FlatParameter* flat;
    TreeAccumulator full;      // sums of full gradients while L > 1
    optim::ShardSums sharded;  // sums of reduced shards; push() and fold() are as for `full`
    Tensor input;              // what is reduced: full_grad, its copy, or the folded `full`
    Tensor leaf;               // receives the reduced shard
  };
  /// The record of one unit. It is in the unit's slot, so its module's hooks reach it directly.
  struct UnitGradients : UnitBackward {
    UnitGradients(GradientReducer& reducer, ShardedUnit& unit);
    void after_forward() override { ++open_calls; }
    void pre_backward() override { reducer->pre_backward(*this); }
    void post_backward() override { reducer->post_backward(*this); }

    GradientReducer* reducer;
    ShardedUnit* unit;
    std::vector<FlatGradient> flats;  // the trainable ones
    int open_calls = 0;               // forward calls whose backward has not ended
    bool is_prepared = false;         // 4.1 has run in this backward
    bool is_done = false;             // 4.5 likewise
  };

  /// `units` in forward order. They must outlive this object, which fills their `backward` slots.
  GradientReducer(std::vector<ShardedUnit*> units, std::shared_ptr<ProcessGroup> group);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Starts a step: nothing is accumulated, micro-step 0. Also recovers from a failed step.
  void begin_step(const optim::StepPlan& plan);

  /// 4.1  Before a unit's first backward node. Afterwards its parameters are unsharded, the
  /// scheduler has been notified, the full gradient is allocated, and all gradient buffers are
  /// reset (the next contribution overwrites).
  void pre_backward(UnitGradients& gradients);

  /// 4.5  After a unit's last backward node (of its last call, if the module was called several
  /// times). Starts the unit's reduction, completes its gradient, finishes the reduction in flight
  /// and reshards the unit, in the order that keeps memory lowest (the handout asks for it). A
  /// frozen unit is resharded, and has nothing to reduce.
  void post_backward(UnitGradients& gradients);

  /// 4.6  After loss.backward() has returned. Every rank calls it, whatever its loss reached (task
  /// 7 does, in end_micro_step). Units that backward never reached contribute +0. Their gradients
  /// need memory and reset buffers like all others: an earlier micro-step may have written them.
  /// Then nothing is in flight, every unit is sharded, and the micro-step is counted.
  void end_of_backward();

  /// 4.7  After the last micro-step. Sets every trainable FlatParameter's shard_grad to the
  /// canonical sum over all micro-batches of all ranks, times 1/(J · plan_.loss_scale). Nothing
  /// stays accumulated, and micro_step() is 0 afterwards.
  /// @throws Error unless plan.micro_steps backwards have run.
  void finish_gradients();

  int micro_step() const { return micro_step_; }  ///< completed backwards of this step

 private:
  friend struct StepProbe;                            // runs one step by itself (tests)
  void complete_gradients(UnitGradients& gradients);  // 4.2
  void start_reduce(UnitGradients& gradients);        // 4.3
  void finish_reduce();                               // 4.4
  // 4.8  A full gradient in the dtype of sums, and a sum in that of the shard. Equal dtypes: given.
  static Tensor to_reduce_dtype(const UnitGradients& gradients, const FlatParameter& flat);
  static Tensor to_shard_dtype(const UnitGradients& gradients, const FlatParameter& flat,
                               const Tensor& sum);
  /// Whether this micro-step ends a group of L: reduce now, or only accumulate.
  bool reduces_now() const;

  std::vector<std::unique_ptr<UnitGradients>> units_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ReplicaSum> across_;          // over the replicas of a mesh (task 8), or null
  std::shared_ptr<optim::HostCopies> to_host_;  // idle unless gradients are offloaded
  optim::StepPlan plan_;
  int micro_step_ = 0;
  UnitGradients* reducing_ = nullptr;  // whose reduction is in flight
  std::vector<Work> reductions_;       // one per flat parameter of it
  std::shared_ptr<void> extra;         // spare, for the student
};

}  // namespace fsdp
