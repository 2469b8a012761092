#include "train/strategy.h"

#include "base/check.h"
#include "io/hf_folder_writer.h"
#include "nn/init_observer.h"
#include "nn/lora.h"
#include "optim/adaptive_optimizers.h"
#include "task7_integration/integration.h"
#include "task8_beyond/checkpoint.h"
#include "task8_beyond/mesh.h"
#include "tensor/cast.h"
#include "train/replicated_strategy.h"
#include "train/zero_strategy.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// With LoRA, what is frozen may have 16 bits: then it is drawn in them, and is in no other format
// for a moment, as under FSDP.
std::shared_ptr<nn::TransformerLM> make_whole_model(const TrainConfig& config) {
  if (!config.has_lora()) return make_model(config);
  DeferredInit deferred;
  auto model = deferred.build([&] { return make_model(config); });
  deferred.materialize(*model, Context::current().device());
  return model;
}

// "fsdp": every rank holds 1/W of the model, and the unit it is working on.
class ShardedStrategy : public Strategy {
 public:
  // A meta start: no rank ever holds the whole model, not even at the beginning.
  ShardedStrategy(const TrainConfig& config, std::shared_ptr<ProcessGroup> group)
      : group_(group),
        has_lora_(config.has_lora()),
        model_(deferred_.build([&] { return make_model(config); })) {
    FullyShardOptions options;
    options.reshard_after_forward = config.parallel.reshard_after_forward;
    options.prefetch_depth = static_cast<int>(config.parallel.prefetch_depth);
    options.in_flight_limit = static_cast<int>(config.parallel.in_flight_limit);
    options.mixed_precision = config.mixed_precision();
    options.offload = config.offload();
    options.deferred = &deferred_;
    options.decays = [&config](const nn::NamedParameter& each) {
      return decays(config.optimizer, each.path);
    };
    const auto replicas = static_cast<int>(config.parallel.replicate_degree);
    sharded_ = fully_shard(*model_, replicas == 1 ? std::move(group) : make_mesh(*group, replicas),
                           std::move(options));
    sharded_->attach_optimizer([&config] { return make_optimizer(config.optimizer); });
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
  void load_full(const std::filesystem::path& folder) override {
    if (!has_lora_) return sharded_->load_full(folder);
    // The same, but the folder has no adapters.
    const io::SafetensorsReader reader(io::existing_folder(folder) / "model.safetensors");
    io::check_hf_parameters(reader, nn::without_lora(model_->named_parameters()));
    barrier("load_full");  // every rank found it right
    for (const auto& unit : sharded_->units()) {
      for (const auto& flat : unit->flat_parameters()) {
        for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
          const std::string& path = flat->spans()[piece.span].path;
          if (nn::is_lora(path)) continue;
          reader.read_slice(path, piece.param_begin,
                            flat->shard().narrow(0, piece.shard_begin, piece.numel));
        }
      }
    }
  }

 protected:
  std::vector<nn::NamedParameter> parameters() override {
    std::vector<nn::NamedParameter> all;
    for (const auto& unit : sharded_->units()) {
      for (const auto& flat : unit->flat_parameters()) {
        all.insert(all.end(), flat->parameters().begin(), flat->parameters().end());
      }
    }
    return all;
  }
  std::vector<io::StateSlice> parameter_slices() override {
    std::vector<io::StateSlice> slices;
    for (const auto& unit : sharded_->units()) {
      for (const auto& flat : unit->flat_parameters()) {
        for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
          const Span& span = flat->spans()[piece.span];
          slices.push_back({"param/" + span.path, span.shape, piece.param_begin,
                            flat->shard().narrow(0, piece.shard_begin, piece.numel)});
        }
      }
    }
    return slices;
  }
  ProcessGroup* group() const override { return group_.get(); }

 private:
  std::shared_ptr<ProcessGroup> group_;
  bool has_lora_;
  DeferredInit deferred_;  // outlives what was built under it
  std::shared_ptr<nn::TransformerLM> model_;
  std::unique_ptr<ShardedModel> sharded_;
};

}  // namespace

void Strategy::barrier(const char* what) const {
  if (group() != nullptr) group()->barrier({what, Phase::checkpoint}).wait();
}

void Strategy::verify(const io::SliceReader& reader) const {
  reader.verify(group() == nullptr ? 0 : group()->rank(), group() == nullptr ? 1 : group()->size());
  barrier("load");  // every rank found it right
}

Strategy::Metadata Strategy::load_parameters(const std::filesystem::path& folder) {
  const io::SliceReader reader(folder);
  const std::vector<io::StateSlice> slices = parameter_slices();
  reader.check(slices);
  verify(reader);
  reader.read(slices);
  return reader.metadata();
}

std::map<std::string, Tensor> Strategy::full_adapters() {
  std::map<std::string, Tensor> adapters;
  const std::vector<nn::NamedParameter> all = parameters();
  if (nn::without_lora(all).size() == all.size()) return adapters;
  for_each_full_parameter([&](const std::string& path, const Tensor& full) {
    if (!is_first() || !nn::is_lora(path)) return;
    const Tensor copy = Tensor::empty(full.shape(), full.dtype(), full.device());
    ops::copy(copy, full);
    adapters[path] = copy;
  });
  return adapters;
}

std::vector<std::string> Strategy::save_full(const std::filesystem::path& folder, io::HfExport how,
                                             double lora_scale) {
  const AllocationScope as_temp(MemoryKind::temp);
  const std::map<std::string, Tensor> adapters = full_adapters();
  const auto to_export = [&](const std::string& path, const Tensor& full) {
    const std::string linear = path.substr(0, path.rfind('.'));
    const auto a = adapters.find(linear + ".lora_A.weight");
    if (a == adapters.end()) return cast(full, wide_of(full.dtype()));
    return nn::merge_lora(full, a->second, adapters.at(linear + ".lora_B.weight"), lora_scale);
  };
  std::optional<io::HfFolderWriter> writer;
  std::vector<std::string> missing;
  if (is_first()) {
    writer.emplace(folder, model().config(), nn::without_lora(parameters()), std::move(how));
  }
  for_each_full_parameter([&](const std::string& path, const Tensor& full) {
    if (writer && !nn::is_lora(path)) writer->write(path, to_export(path, full));
  });
  if (writer) missing = writer->publish();
  barrier("save_full");  // the folder is there
  return missing;
}

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

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config,
                                        std::shared_ptr<ProcessGroup> group) {
  const std::string& name = config.parallel.strategy;
  FSDP_CHECK((group == nullptr) == (name == "single"), "strategy {} {} a process group", name,
             group == nullptr ? "needs" : "has no use for");
  if (name == "fsdp") return std::make_unique<ShardedStrategy>(config, std::move(group));
  auto model = make_whole_model(config);
  if (name == "zero1" || name == "zero2") {
    return std::make_unique<ZeroStrategy>(config, std::move(group), std::move(model));
  }
  return std::make_unique<ReplicatedStrategy>(config, std::move(group), std::move(model));
}

}  // namespace fsdp::train
