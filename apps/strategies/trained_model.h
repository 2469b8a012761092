/// @file
/// @ingroup strategies
/// A model that is trained: whole in one process, whole on every rank, or in shards. Who trains it
/// does not know which.
#pragma once

#include "comm/process_group.h"
#include "config/config.h"
#include "io/sharded_checkpoint.h"
#include "nn/transformer.h"
#include "optim/gradient_engine.h"
#include "optim/master_weights.h"
#include "optim/optimizer.h"
#include "optim/recipe.h"
#include "parallel/zero.h"
#include "task1_meta_device/meta_device.h"
#include "task7_integration/integration.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::strategies {

/// A part of the training's state that this rank holds.
struct HeldSlice {
  io::StateSlice slice;
  bool is_written = true;  ///< by this rank; over all ranks, every element is written once
};

/// One micro-batch: tokens (B, T) int32, and the token that follows each.
struct MicroBatch {
  Tensor tokens;
  Tensor targets;

  /// Undefined values in memory of the host, counted as the AllocationScope says.
  static MicroBatch empty(std::int64_t batch, std::int64_t sequence_length);
  /// The same on this rank's device, for which the host does not wait.
  MicroBatch on_device() const;
};

/// Called between the parts of a step, by instruments that measure each part. May be empty.
struct StepObserver {
  std::function<void(int m)> before_forward = {};  ///< micro-batch m has been made
  std::function<void(int m)> before_backward = {};
  std::function<void(int m)> before_reduce = {};  ///< of what backward has left
  std::function<void()> before_finish = {};       ///< of the gradients
};

/// One rank's model, masters, gradients and optimizer. "Collective": all ranks call it.
class TrainedModel {
 public:
  using Build = std::function<std::shared_ptr<nn::TransformerLM>()>;
  using Visit = std::function<void(const std::string& path, const Tensor& full)>;

  /// @param build  makes the model, to which the recipe adds LoRA and checkpointing. With fsdp, it
  ///               makes it on meta, and no rank ever holds more than its shards; with LoRA, too,
  ///               so that what is frozen is drawn in the format that it has in the end, and with
  ///               ZeRO in 16 bits, so that masters are never whole together
  /// @param group  null for Strategy::single
  TrainedModel(const Build& build, const optim::Recipe& recipe,
               std::shared_ptr<ProcessGroup> group);

  const optim::Recipe& recipe() const { return recipe_; }
  nn::TransformerLM& model() { return *model_; }
  optim::GradientEngine& gradients() { return *gradients_; }
  ShardedModel* sharded() { return sharded_; }  ///< null unless with fsdp
  std::int64_t optimizer_steps() const { return optimizers_.front()->steps(); }
  void set_optimizer_steps(std::int64_t steps);
  ProcessGroup* group() const { return group_.get(); }  ///< null: alone
  bool is_first() const { return group_ == nullptr || group_->rank() == 0; }
  void barrier(const char* what) const;

  /// Begins a step of gradients(), in place of their own begin_step(). Without
  /// Recipe::has_mean_pass(), they stay sums, of scaled losses, until zero_grad(): clip() and
  /// step() make means of them as they read them, with the same bits.
  void begin_step(const optim::StepPlan& plan);
  /// The gradients of one step: forward and backward of every micro-batch, and their sum. The same
  /// whether the bytes exist or are only counted. Collective.
  /// @param next     makes micro-batch m
  /// @param on_loss  sees its loss, a scalar; on a device without data it must not read it
  void make_gradients(const optim::StepPlan& plan, const std::function<MicroBatch(int m)>& next,
                      const std::function<void(const Tensor& loss)>& on_loss,
                      const StepObserver& observer = {});
  /// The next step() scales the gradients as it reads them, so that the common norm of their mean
  /// is at most `max_norm`. Returns that norm; they stay as they are. Collective.
  double clip(double max_norm);
  /// One optimizer step, and whatever makes every rank's parameters current. Collective.
  void step(double lr);

  /// In the order of for_each_full_parameter().
  std::vector<nn::NamedParameter> parameters() const;
  /// Shows every parameter in full, the same order on every rank. Collective.
  void for_each_full_parameter(const Visit& visit);
  /// Of the parameters, all that this rank holds: "param/model.norm.weight", …
  std::vector<HeldSlice> parameter_state() const;
  /// And of the optimizer: "exp_avg/model.norm.weight", … Its state exists from then on.
  std::vector<HeldSlice> state();
  /// As which of how many this rank writes what it holds; others write nothing.
  int writer() const;
  int writers() const;
  /// To be called before the values of slices change.
  void about_to_change();
  /// To be called after they did: what the model reads follows them. Collective.
  void changed();

 private:
  std::shared_ptr<nn::TransformerLM> prepared(const Build& build) const;
  std::shared_ptr<optim::Optimizer> add_optimizer();
  void scale_next_gradients(double clip = 1);  ///< times mean_factor_, and this
  void shard(const Build& build);
  void replicate(const Build& build);
  /// Cuts what is held of a tensor where this rank begins and ends to own it.
  void add_whole(std::vector<HeldSlice>& held, const nn::NamedParameter& parameter) const;

  const optim::Recipe recipe_;
  std::shared_ptr<ProcessGroup> group_;   // null: alone
  std::shared_ptr<ProcessGroup> shards_;  // fsdp: those that divide the model
  DeferredInit deferred_;                 // outlives what was built under it
  std::shared_ptr<nn::TransformerLM> model_;
  optim::MasterWeights masters_;  // of a model that is whole
  bool masters_changed_ = false;  // since the model's copies were made; a sample runs many forwards
  std::unique_ptr<optim::GradientEngine> gradients_;
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers_;  // fsdp: one more of what is ignored
  double mean_factor_ = 1;                   // makes means of gradients(), in this step
  parallel::ZeroGradients* zero_ = nullptr;  // gradients_, if it is one
  ShardedModel* sharded_ = nullptr;          // likewise
};

/// The model of a configuration. What will be read from files is not drawn first.
/// @param group  null for Strategy::single
std::unique_ptr<TrainedModel> make_trained_model(const config::TrainConfig& config,
                                                 std::shared_ptr<ProcessGroup> group);

}  // namespace fsdp::strategies
