#include "train/strategy.h"

#include "base/check.h"
#include "nn/init_observer.h"
#include "nn/lora.h"
#include "optim/adaptive_optimizers.h"
#include "task8_beyond/checkpoint.h"

#include <map>
#include <string>
#include <utility>

namespace fsdp::train {
namespace {

// Draws no random numbers for parameters that will be read. A model that is built on meta keeps
// zeros for them.
class Undrawn : public nn::InitObserver {
 public:
  void on_initialize(const Variable& parameter, const InitSpec&) override {
    if (outer_ != nullptr) outer_->on_initialize(parameter, InitSpec::zeros());
  }

 private:
  nn::InitObserver* outer_ = nn::InitObserverScope::current();
};

std::shared_ptr<nn::TransformerLM> make_base(const TrainConfig& config) {
  if (config.from.empty()) return std::make_shared<nn::TransformerLM>(config.model);
  Undrawn undrawn;
  const nn::InitObserverScope scope(undrawn);
  return std::make_shared<nn::TransformerLM>(config.model);
}

std::shared_ptr<nn::TransformerLM> make_model(const TrainConfig& config) {
  std::shared_ptr<nn::TransformerLM> model = make_base(config);
  if (config.has_lora()) nn::add_lora(*model, config.lora_options());
  if (config.checkpoints_blocks()) {
    for (const auto& block : model->blocks()) checkpoint(*block);
  }
  return model;
}

strategies::Strategy strategy_of(const ParallelConfig& config) {
  using strategies::Strategy;
  static const std::map<std::string, Strategy> all = {{"single", Strategy::single},
                                                      {"ddp", Strategy::ddp},
                                                      {"zero1", Strategy::zero1},
                                                      {"zero2", Strategy::zero2},
                                                      {"fsdp", Strategy::fsdp}};
  return all.at(config.strategy);
}

}  // namespace

optim::StepPlan plan_of(const TrainConfig& config) {
  const auto micro_steps = static_cast<int>(config.micro_batches() / config.parallel.ranks);
  return {micro_steps, config.training.no_sync ? micro_steps : 1};
}

std::shared_ptr<optim::Optimizer> make_optimizer(const OptimizerConfig& config) {
  const auto& [beta1, beta2, eps, weight_decay] = config.adamw;
  if (config.name == "adamw") return std::make_shared<optim::AdamW>(config.adamw);
  if (config.name == "adam") {
    return std::make_shared<optim::Adam>(optim::Adam::Options{beta1, beta2, eps, weight_decay});
  }
  if (config.name == "adamax") {
    return std::make_shared<optim::Adamax>(optim::Adamax::Options{beta1, beta2, eps, weight_decay});
  }
  if (config.name == "adagrad") {
    return std::make_shared<optim::Adagrad>(optim::Adagrad::Options{
        config.lr_decay, config.initial_accumulator_value, eps, weight_decay});
  }
  if (config.name == "adadelta") {
    return std::make_shared<optim::Adadelta>(
        optim::Adadelta::Options{config.rho, eps, weight_decay});
  }
  return std::make_shared<optim::Sgd>(optim::Sgd::Options{config.momentum, weight_decay});
}

bool decays(const OptimizerConfig& config, const std::string& path) {
  return config.decay_norms || !path.ends_with("norm.weight");
}

// A bucket's gradients are made in it, so they have the format that the model computes in.
std::size_t bucket_bytes(const TrainConfig& config) {
  const auto numel = static_cast<std::size_t>(config.parallel.reduce_bucket_size);
  if (numel == 0) return parallel::DdpGradients::kBucketBytes;
  return numel * size_of(config.mixed_precision().param_dtype_for(DType::float32));
}

parallel::ZeroOptions zero_options(const TrainConfig& config) {
  static const std::map<std::string, parallel::Partition> partitions = {
      {"greedy", parallel::Partition::greedy},
      {"flat", parallel::Partition::flat},
      {"round_robin", parallel::Partition::round_robin}};
  const ParallelConfig& parallel = config.parallel;
  parallel::ZeroOptions options;
  options.partition = partitions.at(parallel.zero_partition);
  const auto reduced = static_cast<std::size_t>(parallel.reduce_bucket_size);
  options.reduce_buffer_bytes =
      reduced == 0 ? static_cast<std::size_t>(parallel.reduce_buffer_size)
                   : reduced * size_of(config.mixed_precision().reduce_dtype_for(DType::float32));
  if (parallel.allgather_bucket_size > 0) {
    options.broadcast_buffer_bytes =
        static_cast<std::size_t>(parallel.allgather_bucket_size) *
        size_of(parallel.broadcast_fp16 ? DType::float16 : DType::float32);
  }
  options.broadcast_fp16 = parallel.broadcast_fp16;
  options.reductions = {.compression = parallel.compression(), .overlap = parallel.overlap_comm};
  options.contiguous_gradients = parallel.contiguous_gradients;
  options.reduce_scatter = parallel.reduce_scatter;
  return options;
}

std::unique_ptr<TrainedModel> make_trained_model(const TrainConfig& config,
                                                 std::shared_ptr<ProcessGroup> group) {
  const std::string& name = config.parallel.strategy;
  FSDP_CHECK((group == nullptr) == (name == "single"), "strategy {} {} a process group", name,
             group == nullptr ? "needs" : "has no use for");
  strategies::Spread spread;
  spread.strategy = strategy_of(config.parallel);
  spread.replicas = static_cast<int>(config.parallel.replicate_degree);
  spread.bucket_bytes = bucket_bytes(config);
  spread.zero = zero_options(config);
  spread.reshard = config.parallel.reshard_after_forward;
  spread.prefetch_depth = static_cast<int>(config.parallel.prefetch_depth);
  spread.in_flight_limit = static_cast<int>(config.parallel.in_flight_limit);
  spread.offload = config.offload();
  // With LoRA, what is frozen may have 16 bits: then it is drawn in them.
  spread.is_deferred = name == "fsdp" || config.has_lora();
  spread.mixed_precision = config.mixed_precision();
  spread.make_optimizer = [&config] { return make_optimizer(config.optimizer); };
  spread.decays = [&config](const std::string& path) { return decays(config.optimizer, path); };
  return std::make_unique<TrainedModel>([&config] { return make_model(config); }, spread,
                                        std::move(group));
}

}  // namespace fsdp::train
