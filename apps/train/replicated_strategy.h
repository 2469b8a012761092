/// @file
/// @ingroup train
/// ReplicatedStrategy: strategies "single" and "ddp", where every rank holds the whole model.
#pragma once

#include "optim/master_weights.h"
#include "train/strategy.h"

#include <memory>
#include <vector>

namespace fsdp::train {

/// Every rank holds all parameters, gradients and optimizer state.
class ReplicatedStrategy : public Strategy {
 public:
  /// `group` is null for a single process.
  ReplicatedStrategy(const TrainConfig& config, std::shared_ptr<ProcessGroup> group,
                     std::shared_ptr<nn::TransformerLM> model);

  nn::TransformerLM& model() override { return *model_; }
  optim::GradientEngine& gradients() override { return *gradients_; }
  double clip(double max_norm) override;
  void step(double lr) override;
  void for_each_full_parameter(const Visit& visit) override;
  /// All ranks hold the same, so rank 0 writes one shard that is everything.
  void save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                       Metadata metadata) override;
  Metadata load_checkpoint(const std::filesystem::path& folder) override;
  void load_full(const std::filesystem::path& folder) override;

 protected:
  /// Without gradients: the constructor of a derived class calls set_gradients().
  struct WithoutGradients {};
  ReplicatedStrategy(WithoutGradients, const TrainConfig& config,
                     std::shared_ptr<ProcessGroup> group, std::shared_ptr<nn::TransformerLM> model);
  void set_gradients(std::unique_ptr<optim::GradientEngine> gradients,
                     const OptimizerConfig& config);

  std::vector<nn::NamedParameter> parameters() override { return model_->named_parameters(); }
  ProcessGroup* group() const override { return group_.get(); }
  const std::shared_ptr<ProcessGroup>& shared_group() const { return group_; }
  const optim::MasterWeights& masters() const { return masters_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  // Named as the sharded strategy names them, so that each loads what the other wrote.
  std::vector<io::StateSlice> parameter_slices() override;
  /// Of the optimizer's state, what this rank holds; by default that of whole parameters.
  virtual std::vector<io::StateSlice> optimizer_slices();
  /// What this rank alone of all must find in a checkpoint that it loads.
  virtual std::vector<io::StateSlice> written_slices();

 private:
  std::shared_ptr<ProcessGroup> group_;  // null: alone
  std::shared_ptr<nn::TransformerLM> model_;
  optim::MasterWeights masters_;
  bool masters_changed_ = false;  // since the model's copies were made; a sample runs many forwards
  std::shared_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::GradientEngine> gradients_;
};

}  // namespace fsdp::train
