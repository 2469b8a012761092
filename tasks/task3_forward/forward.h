/// @file
/// @ingroup task3
/// Task 3: the forward pass: unshard a unit before it computes, reshard it afterwards.
#pragma once

#include "base/check.h"
#include "comm/process_group.h"
#include "nn/module.h"
#include "optim/reshard.h"  // ReshardAfterForward
#include "task2_flat_parameter/flat_parameter.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

class ShardedUnit;

/// The slot through which task 6 reaches the forward and backward passes. Empty by default.
class UnshardScheduler {
 public:
  virtual ~UnshardScheduler() = default;
  /// `unit` is unsharded and is about to compute. Start the next units.
  virtual void before_forward(ShardedUnit& unit) = 0;
  virtual void before_backward(ShardedUnit& unit) = 0;
};

/// The slot through which task 4 reaches a unit's backward. Empty by default.
class UnitBackward {
 public:
  virtual ~UnitBackward() = default;
  virtual void after_forward() = 0;  ///< the module was called with a tape, so a backward may come
  virtual void pre_backward() = 0;   ///< the first backward node of a call is about to run
  virtual void post_backward() = 0;  ///< the last one has run
};

/// A unit: parameters that are unsharded and resharded together, and the module that uses them.
///
///                 start_unshard()        finish_unshard()
///     sharded ----------------> unsharding ----------> unsharded
///        ^                          |                      |
///        +----------- reshard() ----+----------------------+
///
///     state         full()                  gathers in flight      parts (3.4)
///     sharded       not allocated           none                   none, or one per flat parameter
///     unsharding    allocated, not ready    one per flat parameter  those being gathered, if any
///     unsharded     can be read             none                   none
///
/// Both halves are idempotent. Prefetching means calling the first half earlier.
class ShardedUnit {
 public:
  enum class State { sharded, unsharding, unsharded };

  struct Options {
    ReshardAfterForward reshard_after_forward = ReshardAfterForward::always();
    /// Keep the parameters between forward and backward, whatever reshard_after_forward says. Set
    /// for the root's unit (used first and last), or else for the last unit (needed again at once).
    bool keep_until_backward = false;
  };

  /// `subgroup`: the s consecutive ranks around this one for within(s), else null.
  ShardedUnit(std::string name, nn::Module& module,
              std::vector<std::unique_ptr<FlatParameter>> flat_parameters,
              std::shared_ptr<ProcessGroup> group, std::shared_ptr<ProcessGroup> subgroup,
              Options options);
  ~ShardedUnit();
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  /// 3.1  Allocates the full parameters and starts to gather them. Does not wait.
  /// A no-op unless the unit is sharded. Afterwards: unsharding (or unsharded, unchanged).
  /// Label: {name(), phase}.
  void start_unshard(Phase phase);

  /// 3.2  Waits until the full parameters can be read. Starts the gather first, if necessary.
  /// Afterwards: unsharded.
  /// @throws Error if another rank has failed
  void finish_unshard(Phase phase);

  /// 3.3  Frees the full parameters' storage (the views stay valid) and drops the parts of 3.4.
  /// Waits for a gather in flight first. Afterwards: sharded. Idempotent.
  /// @throws Error if another rank has failed during such a gather
  void reshard();

  /// 3.4  The same at the end of forward under within(s), but first keeps 1/s of the vector. The
  /// next start_unshard gathers these parts in the subgroup. Called on an unsharded unit; a no-op
  /// if it is sharded already.
  void reshard_to_subgroup();

  /// 3.5  Attaches the unit to its module. All that forward and backward do to a unit:
  ///   pre-forward    finish_unshard, then scheduler->before_forward
  ///   post-forward   reshard as the options say; reshard() if no tape is recorded
  ///                  then, with a tape, backward->after_forward            (given)
  ///   pre-backward   backward->pre_backward     task 4: finish_unshard …   (given)
  ///   post-backward  backward->post_backward    task 4: reshard, reduce    (given)
  void install_hooks();

  const std::string& name() const { return name_; }
  nn::Module& module() { return module_; }
  const std::vector<std::unique_ptr<FlatParameter>>& flat_parameters() const { return flats_; }
  ProcessGroup& group() { return *group_; }
  State state() const { return state_; }
  const Options& options() const { return options_; }
  /// What the next forwards leave of the unit, decided anew. within(s) needs a subgroup of s ranks.
  /// Source: set_reshard_after_forward of PyTorch's FSDPModule.
  /// @throws Error if the unit was made without it
  void set_options(const Options& options) {
    const ReshardAfterForward& rule = options.reshard_after_forward;
    FSDP_CHECK(!rule.is_within() || (subgroup_ != nullptr && subgroup_->size() == rule.ranks),
               "unit {}: it was made without a subgroup of {} ranks", name_, rule.ranks);
    options_ = options;
  }
  bool has_trainable() const;
  /// Σ P over the unit's flat parameters.
  std::int64_t padded_numel() const;

  UnshardScheduler* scheduler = nullptr;  ///< task 6's slot; not owned
  UnitBackward* backward = nullptr;       ///< task 4's slot; not owned

 private:
  void pre_forward();
  void post_forward();
  std::shared_ptr<Storage> subgroup_storage(const FlatParameter& flat) const;
  // 3.6  What a gather of `flat` among all ranks reads: shard(), or a copy of it that fits full().
  Tensor to_gather(const FlatParameter& flat, Phase phase) const;

  std::string name_;
  nn::Module& module_;
  std::vector<std::unique_ptr<FlatParameter>> flats_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ProcessGroup> subgroup_;
  Options options_;
  State state_ = State::sharded;
  std::vector<Work> gathers_;           // in flight while unsharding, one per flat parameter
  std::vector<Tensor> subgroup_parts_;  // (P/s) each, kept by 3.4 for the next gather
  std::vector<int> hooks_;
  std::shared_ptr<void> extra;  // spare, for the student
};

}  // namespace fsdp
