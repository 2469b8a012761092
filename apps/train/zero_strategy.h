/// @file
/// @ingroup train
/// ZeroStrategy: strategies "zero1" and "zero2", where optimizer state is divided among the ranks.
#pragma once

#include "parallel/zero.h"
#include "train/replicated_strategy.h"

#include <memory>
#include <vector>

namespace fsdp::train {

parallel::ReduceOptions reduce_options(const ParallelConfig& config);
/// Of DdpGradients, and of the all-reduces of ZeRO-1.
std::size_t bucket_bytes(const TrainConfig& config);
parallel::ZeroOptions zero_options(const TrainConfig& config);

/// Every rank holds the whole model, and optimizer state only for the parameters that it owns.
class ZeroStrategy : public ReplicatedStrategy {
 public:
  ZeroStrategy(const TrainConfig& config, std::shared_ptr<ProcessGroup> group,
               std::shared_ptr<nn::TransformerLM> model);

  /// The step of what this rank owns, and the broadcast of it. Collective.
  void step(double lr) override;
  /// Every rank writes what it owns; rank 0 also writes frozen parameters.
  void save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                       Metadata metadata) override;

 protected:
  std::vector<io::StateSlice> optimizer_slices() override;
  std::vector<io::StateSlice> written_slices() override;

 private:
  parallel::ZeroGradients* zero_;  // the gradients of the base class
};

}  // namespace fsdp::train
