/// @file
/// @ingroup task7
/// Task 7: fully_shard: all tasks together, on a whole model.
#pragma once

#include "comm/process_group.h"
#include "io/checkpoint_folder.h"
#include "io/sharded_checkpoint.h"
#include "optim/gradient_engine.h"
#include "parallel/ddp.h"
#include "task1_meta_device/meta_device.h"
#include "task4_backward/backward.h"
#include "task5_sharded_optimizer/sharded_optimizer.h"
#include "task6_prefetching/prefetching.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

/// Which modules become units. Parameters outside of them belong to the root.
using WrapPolicy = std::function<std::vector<nn::Module*>(nn::Module& root)>;

/// The default: the modules that fully_shard(module) was called for, in registration order. If it
/// was called for none, then root.default_units(). Of a TransformerLM these are the embedding,
/// every block and the head (final norm and lm_head), in that order. With tied embeddings they are
/// the blocks only; the root has embedding, norm and head. Of any other module they are those of
/// its children that have parameters, unless it names others.
std::vector<nn::Module*> default_wrap_policy(nn::Module& root);

struct FullyShardOptions {
  WrapPolicy wrap = default_wrap_policy;
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::always();
  int prefetch_depth = 1;   ///< units gathered ahead; 0 = none
  int in_flight_limit = 0;  ///< gathers in flight; 0 = prefetch_depth
  /// Paths of modules or parameters to keep whole on every rank; gradients are all-reduced.
  std::vector<std::string> ignored;
  /// Which parameters decay, ignored ones included. A flat parameter holds one kind. Default: all.
  std::function<bool(const nn::NamedParameter&)> decays;
  /// In which formats the model computes and gradients are summed. The shards keep theirs.
  optim::MixedPrecision mixed_precision;
  /// What of the shards lives in host memory. @throws Error where device and host are one memory.
  optim::Offload offload;
  /// A meta start: the model was built under it, and each rank initializes only its shards.
  const DeferredInit* deferred = nullptr;
};

/// A model with sharded units, and everything needed to train it. Made by fully_shard().
///
/// You use the model as before: `model(tokens)`, `loss.backward()`. Your loop follows
/// GradientEngine's protocol, then calls clip_grad_norm() and step(). The module must outlive this
/// object; its parameters stay sharded afterwards.
class ShardedModel : public optim::GradientEngine {
 public:
  ShardedModel(nn::Module& root, std::shared_ptr<ProcessGroup> group, FullyShardOptions options);
  ~ShardedModel() override;

  nn::Module& module() { return root_; }
  ProcessGroup& group() { return *group_; }
  /// In forward order. The root's unit comes first, if it manages anything.
  const std::vector<std::unique_ptr<ShardedUnit>>& units() const { return units_; }
  /// The unit of that name. @throws Error that lists all names if there is none.
  ShardedUnit& unit(const std::string& name);
  Prefetcher* prefetcher() { return prefetcher_.get(); }
  const FullyShardOptions& options() const { return options_; }

  // ------------------------------------------------------------------------- training (7.4)
  /// Calls `make_optimizer` once for the shards and, if ignored parameters are trained, for those.
  void attach_optimizer(const std::function<std::shared_ptr<optim::Optimizer>()>& make_optimizer);
  void begin_step(const optim::StepPlan& plan) override;
  void end_micro_step() override;
  void finish_gradients() override;
  std::vector<optim::Piece>& pieces() override;
  void add_squares(ExactSquareSum& sum) override;
  void zero_grad() override;
  double clip_grad_norm(double max_norm);
  void step(double lr);
  ShardedOptimizer& optimizer();
  /// Reshards every unit. Call it before the shards change (step and both loads do). Otherwise a
  /// unit that a recorded forward left unsharded would compute with the old parameters.
  void reshard();

  // -------------------------------------------------------------------- full state (7.5)
  /// Visits every full parameter, unit by unit, on every rank. `full` has the parameter's shape and
  /// is valid only during the call. At most one unit is unsharded at a time; one that an earlier
  /// forward left unsharded may stay so until its turn. Collective.
  void for_each_full_parameter(
      const std::function<void(const nn::NamedParameter&, const Tensor& full)>& visit);
  /// Rank 0 writes `folder/model.safetensors` and, for a TransformerLM, `config.json`: the files
  /// that Hugging Face's from_pretrained loads. The folder appears whole. Collective.
  virtual void save_full(const std::filesystem::path& folder);
  /// Reads this rank's slices from `folder/model.safetensors`. Nothing changes on any rank unless
  /// the file holds exactly the model's parameters (io/hf_folder.h, check_hf_parameters, lists what
  /// is allowed of dtypes and extra tensors). Collective.
  void load_full(const std::filesystem::path& folder);

  // ------------------------------------------------------------------ sharded state (7.6)
  /// This rank's part of the training state, as in ShardedOptimizer::state_slices. with_replicated
  /// adds the ignored parameters and their optimizer state; every rank holds these whole.
  std::vector<io::StateSlice> state_slices(bool with_replicated);
  /// Saves parameters, optimizer state and step count, each rank its slices. Collective.
  virtual void save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                               std::map<std::string, std::string> metadata);
  /// Loads what save_checkpoint wrote at any W. All ranks check everything before any rank changes
  /// anything. Collective. @return the metadata
  std::map<std::string, std::string> load_checkpoint(const std::filesystem::path& folder);

 private:
  friend struct StepProbe;  // runs one step by itself (tests)
  struct Unbuilt {};
  /// Everything but steps 7.1, 7.2 and 7.3.
  ShardedModel(Unbuilt, nn::Module& root, std::shared_ptr<ProcessGroup> group,
               FullyShardOptions options);
  void make_units();       // 7.1
  void install_hooks();    // 7.2
  void make_replicated();  // 7.3
  std::vector<std::unique_ptr<FlatParameter>> make_flat_parameters(
      const std::string& unit, const std::vector<nn::NamedParameter>& parameters) const;
  bool is_ignored(const nn::NamedParameter& parameter) const;
  std::vector<FlatParameter*> flat_parameters() const;

  nn::Module& root_;
  std::shared_ptr<ProcessGroup> group_;
  FullyShardOptions options_;
  Device device_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<nn::NamedParameter> replicated_;
  optim::MasterWeights replicated_masters_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<Prefetcher> prefetcher_;                        // null at depth 0
  std::unique_ptr<parallel::DdpGradients> replicated_gradients_;  // null: nothing to train
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::shared_ptr<optim::Optimizer> replicated_optimizer_;
  std::vector<optim::Piece> pieces_;
  std::vector<int> hooks_;      // on the root
  std::shared_ptr<void> extra;  // spare, for the student
};

/// Shards `module` over `group`. Each rank keeps 1/W of the parameters; the full ones are freed
/// between uses. A unit's name is its module's path; "root" for the root. In a mesh
/// (task 8), `group` is one of several replicas: each is sharded alike, and gradients are summed
/// over all.
///
/// @throws Error if a part of it is sharded already, or is marked as a unit but left out by
/// options.wrap.
std::unique_ptr<ShardedModel> fully_shard(nn::Module& module, std::shared_ptr<ProcessGroup> group,
                                          FullyShardOptions options = {});

/// Marks `module` as a unit of the model that fully_shard() is called for later, as PyTorch's users
/// do:
///
///     for (const auto& block : model.blocks()) fully_shard(*block);
///     auto sharded = fully_shard(model, group);
///
/// @throws Error for a module that is a unit, or in a sharded model, already; and for the model, if
/// it has such units.
void fully_shard(nn::Module& module);

}  // namespace fsdp
