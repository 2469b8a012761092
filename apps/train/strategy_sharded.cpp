// Strategy "fsdp": every rank holds 1/W of the model, and the unit it is working on.
#include "task7_integration/integration.h"
#include "train/strategy.h"

#include <utility>

namespace fsdp::train {
namespace {

class ShardedStrategy : public Strategy {
 public:
  // A meta start: no rank ever holds the whole model, not even at the beginning.
  ShardedStrategy(const TrainConfig& config, std::shared_ptr<ProcessGroup> group)
      : model_(deferred_.build([&] { return std::make_shared<nn::TransformerLM>(config.model); })) {
    FullyShardOptions options;
    options.reshard_after_forward = config.parallel.reshard_after_forward;
    options.prefetch_depth = static_cast<int>(config.parallel.prefetch_depth);
    options.in_flight_limit = static_cast<int>(config.parallel.in_flight_limit);
    options.deferred = &deferred_;
    options.decays = [&config](const nn::NamedParameter& each) { return config.decays(each.path); };
    sharded_ = fully_shard(*model_, std::move(group), std::move(options));
    sharded_->attach_optimizer([&config] { return config.make_optimizer(); });
  }

  nn::TransformerLM& model() override { return *model_; }
  optim::GradientEngine& gradients() override { return *sharded_; }
  double clip(double max_norm) override { return sharded_->clip_grad_norm(max_norm); }
  void step(double lr) override { sharded_->step(lr); }

  void for_each_full_parameter(const Visit& visit) override {
    sharded_->for_each_full_parameter(
        [&](const nn::NamedParameter& each, const Tensor& full) { visit(each.path, full); });
  }
  void save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                       Metadata metadata) override {
    sharded_->save_checkpoint(folder, step, std::move(metadata));
  }
  Metadata load_checkpoint(const std::filesystem::path& folder) override {
    return sharded_->load_checkpoint(folder);
  }
  void save_full(const std::filesystem::path& folder) override { sharded_->save_full(folder); }

 private:
  DeferredInit deferred_;  // outlives what was built under it
  std::shared_ptr<nn::TransformerLM> model_;
  std::unique_ptr<ShardedModel> sharded_;
};

}  // namespace

std::unique_ptr<Strategy> make_sharded_strategy(const TrainConfig& config,
                                                std::shared_ptr<ProcessGroup> group) {
  return std::make_unique<ShardedStrategy>(config, std::move(group));
}

}  // namespace fsdp::train
