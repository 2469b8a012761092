/// @file
/// @ingroup train
/// Where a model lives: whole in one process, whole on every rank, or in shards. The training loop
/// does not know which.
#pragma once

#include "comm/process_group.h"
#include "io/checkpoint_folder.h"
#include "io/hf_folder.h"
#include "io/sharded_checkpoint.h"
#include "nn/transformer.h"
#include "optim/gradient_engine.h"
#include "optim/optimizer.h"
#include "train/config.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::train {

/// One rank's model, gradients and optimizer. Whatever says "collective" is called by all ranks.
class Strategy {
 public:
  using Metadata = std::map<std::string, std::string>;
  using Visit = std::function<void(const std::string& path, const Tensor& full)>;

  virtual ~Strategy() = default;
  virtual nn::TransformerLM& model() = 0;
  virtual optim::GradientEngine& gradients() = 0;
  /// Scales the gradients so that their common norm is at most `max_norm`; returns the norm before.
  /// Collective.
  virtual double clip(double max_norm) = 0;
  /// One optimizer step.
  virtual void step(double lr) = 0;

  /// Shows every parameter in full, in some order, the same on every rank. Collective.
  virtual void for_each_full_parameter(const Visit& visit) = 0;
  /// Writes the checkpoint of `step`; it appears whole. A checkpoint written by any strategy at any
  /// W can be loaded by any other. Collective.
  virtual void save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                               Metadata metadata) = 0;
  /// Loads one; nothing changes unless all of it fits. Collective.
  virtual Metadata load_checkpoint(const std::filesystem::path& folder) = 0;
  /// Loads only the parameters of one, whatever optimizer made them. Collective.
  Metadata load_parameters(const std::filesystem::path& folder);
  /// The parameters from such a folder. With model.from they have no values before this, or before
  /// load_checkpoint(). No rank reads more than it keeps. Collective.
  /// Adapters of LoRA keep their first values.
  virtual void load_full(const std::filesystem::path& folder) = 0;
  /// A folder for Hugging Face's from_pretrained, which rank 0 writes. With LoRA, the adapters are
  /// merged into the weights. Collective.
  /// @return on rank 0: what the folder should have and lacks, one sentence each
  std::vector<std::string> save_full(const std::filesystem::path& folder, io::HfExport how,
                                     double lora_scale = 1);

 protected:
  /// In the order of for_each_full_parameter().
  virtual std::vector<nn::NamedParameter> parameters() = 0;
  /// Of the parameters, what this rank holds.
  virtual std::vector<io::StateSlice> parameter_slices() = 0;
  virtual ProcessGroup* group() const = 0;  ///< null: alone
  bool is_first() const { return group() == nullptr || group()->rank() == 0; }
  void barrier(const char* what) const;
  /// That a checkpoint is not damaged. Collective.
  void verify(const io::SliceReader& reader) const;
  /// LoRA's, by path, on rank 0; they are small.
  std::map<std::string, Tensor> full_adapters();
};

/// How a rank takes its share of a step's micro-batches.
optim::StepPlan plan_of(const TrainConfig& config);
std::shared_ptr<optim::Optimizer> make_optimizer(const OptimizerConfig& config);
/// Whether weight decay applies to the parameter of this path.
bool decays(const OptimizerConfig& config, const std::string& path);

/// `group` is null for strategy "single".
std::unique_ptr<Strategy> make_strategy(const TrainConfig& config,
                                        std::shared_ptr<ProcessGroup> group);

}  // namespace fsdp::train
