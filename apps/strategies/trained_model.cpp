#include "strategies/trained_model.h"

#include "autograd/functions.h"
#include "autograd/kept_results.h"
#include "base/check.h"
#include "comm/replicas.h"
#include "nn/init_observer.h"
#include "nn/lora.h"
#include "optim/local_gradients.h"
#include "parallel/ddp.h"
#include "task8_beyond/checkpoint.h"
#include "task8_beyond/mesh.h"
#include "tensor/host_copy.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace fsdp::strategies {

using optim::Checkpointing;
using optim::Strategy;

namespace {

FullyShardOptions shard_options(const optim::Recipe& recipe) {
  FullyShardOptions options;
  options.reshard_after_forward = recipe.sharding.reshard_after_forward;
  options.prefetch_depth = recipe.sharding.prefetch_depth;
  options.in_flight_limit = recipe.sharding.in_flight_limit;
  options.ignored = recipe.sharding.ignored;
  options.mixed_precision = recipe.precision;
  options.offload = recipe.sharding.offload;
  options.decays = [optimizer = recipe.optimizer](const nn::NamedParameter& each) {
    return optimizer.decays(each.path);
  };
  return options;
}

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

std::vector<nn::Module*> checkpointed_blocks(nn::TransformerLM& model,
                                             const optim::Recipe& recipe) {
  std::vector<nn::Module*> blocks;
  for (const auto& block : model.blocks()) blocks.push_back(block.get());
  std::int64_t index = 0;
  std::erase_if(blocks, [&](nn::Module*) { return !recipe.checkpoints_block(index++); });
  return blocks;
}

// Inside. While evaluating there is no second call, so nothing is kept for it.
void checkpoint_blocks(nn::TransformerLM& model, const optim::Recipe& recipe) {
  for (nn::Module* block : checkpointed_blocks(model, recipe)) {
    if (recipe.checkpointing == Checkpointing::inside) checkpoint(*block);
    if (recipe.checkpointing != Checkpointing::operations) continue;
    block->wrap_forward(
        [kept = recipe.kept_operations](nn::Module& self, const Variable& x, const nn::Call& call) {
          return Checkpoint::run(self, x, grad_enabled() ? keeping(call, kept) : call);
        });
  }
}

void checkpoint_units(nn::TransformerLM& model, const optim::Recipe& recipe,
                      ShardedModel& sharded) {
  if (recipe.checkpointing != Checkpointing::around) return;
  for (nn::Module* block : checkpointed_blocks(model, recipe)) {
    checkpoint_around(sharded.unit(block->path()));
  }
}

}  // namespace

MicroBatch MicroBatch::empty(std::int64_t batch, std::int64_t sequence_length) {
  const Context& context = Context::current();
  // Beside a card, pinned memory: it is copied while the host goes on.
  const Device device = context.device().type == DeviceType::cuda ? context.host() : kCpu;
  return {Tensor::empty({batch, sequence_length}, DType::int32, device),
          Tensor::empty({batch, sequence_length}, DType::int32, device)};
}

MicroBatch MicroBatch::on_device() const {
  const Device device = Context::current().device();
  if (device.type != DeviceType::cuda) return *this;
  const auto copy = [&](const Tensor& from) {
    Tensor to = Tensor::empty(from.shape(), from.dtype(), device);
    start_host_copy(to, from, {}).wait();
    return to;
  };
  return {copy(tokens), copy(targets)};
}

TrainedModel::TrainedModel(const Build& build, const optim::Recipe& recipe,
                           std::shared_ptr<ProcessGroup> group)
    : recipe_(recipe), group_(std::move(group)) {
  recipe_.validate();
  FSDP_CHECK((group_ == nullptr) == (recipe.strategy == Strategy::single),
             "strategy {} {} a process group", name_of(recipe.strategy),
             group_ == nullptr ? "needs" : "has no use for");
  recipe.strategy == Strategy::fsdp ? shard(build) : replicate(build);
}

std::shared_ptr<nn::TransformerLM> TrainedModel::prepared(const Build& build) const {
  std::shared_ptr<nn::TransformerLM> model = build();
  if (recipe_.has_lora()) nn::add_lora(*model, recipe_.lora, recipe_.precision.param_dtype);
  for (nn::NamedParameter& each : model->named_parameters()) {
    each.variable.set_requires_grad(recipe_.trains(each.path));
  }
  checkpoint_blocks(*model, recipe_);
  return model;
}

void TrainedModel::shard(const Build& build) {
  model_ = deferred_.build([&] { return prepared(build); });
  FullyShardOptions options = shard_options(recipe_);
  options.deferred = &deferred_;
  shards_ = recipe_.replicas == 1 ? group_ : make_mesh(*group_, recipe_.replicas);
  auto sharded = fully_shard(*model_, shards_, std::move(options));
  sharded->attach_optimizer([this] { return add_optimizer(); });
  checkpoint_units(*model_, recipe_, *sharded);
  sharded_ = sharded.get();
  gradients_ = std::move(sharded);
}

void TrainedModel::replicate(const Build& build) {
  DeferredInit deferred;
  const bool is_deferred =
      recipe_.has_lora() || (recipe_.is_zero() && recipe_.precision.param_dtype);
  const auto prepare = [&] { return prepared(build); };
  model_ = is_deferred ? deferred.build(prepare) : prepare();
  const auto variables = model_->variables();
  const auto make = [&](Variable& parameter) {
    if (parameter.data().device() != kMeta) return;
    parameter.set_data(Tensor::empty(parameter.shape(), parameter.data().dtype()));
    deferred.init_slice(parameter, 0, parameter.data().view({parameter.data().numel()}));
  };
  std::vector<optim::MasterWeights::Part> parts;
  if (recipe_.is_zero()) {
    parts = parallel::owned_parts(variables, recipe_.zero.partition, *group_);
  }
  masters_ =
      optim::MasterWeights(variables, recipe_.precision, parts, make, recipe_.sharding.offload);
  if (is_deferred) deferred.materialize(*model_, Context::current().device());  // the rest
  add_optimizer();
  model_->register_forward_pre_hook([this](nn::Module&) {
    if (std::exchange(masters_changed_, false)) masters_.refresh();
  });
  const auto& [strategy, zero_options] = std::tie(recipe_.strategy, recipe_.zero);
  std::unique_ptr<parallel::ZeroGradients> zero;
  if (strategy == Strategy::zero1) {
    zero = std::make_unique<parallel::Zero1Gradients>(variables, group_, zero_options, masters_,
                                                      recipe_.bucket_bytes);
  } else if (strategy == Strategy::zero2) {
    zero = std::make_unique<parallel::Zero2Gradients>(variables, group_, zero_options, masters_);
  } else if (strategy == Strategy::ddp) {
    gradients_ = std::make_unique<parallel::DdpGradients>(variables, group_, recipe_.bucket_bytes,
                                                          masters_, zero_options.reductions);
  } else {
    gradients_ = std::make_unique<optim::LocalGradients>(variables, masters_,
                                                         zero_options.reductions.compression);
  }
  zero_ = zero.get();
  if (zero != nullptr) gradients_ = std::move(zero);
  for (optim::Piece& piece : gradients_->pieces()) {
    piece.decay = recipe_.optimizer.decays(piece.key);
  }
}

std::shared_ptr<optim::Optimizer> TrainedModel::add_optimizer() {
  return optimizers_.emplace_back(
      std::make_shared<optim::Optimizer>(recipe_.optimizer.name, recipe_.optimizer.options));
}

void TrainedModel::set_optimizer_steps(std::int64_t steps) {
  for (const auto& each : optimizers_) each->set_steps(steps);
}

void TrainedModel::barrier(const char* what) const {
  if (group_ != nullptr) group_->barrier({what, Phase::checkpoint}).wait();
}

void TrainedModel::scale_next_gradients(double clip) {
  for (const auto& each : optimizers_) each->scale_next_gradients(mean_factor_, clip);
}

void TrainedModel::begin_step(const optim::StepPlan& plan) {
  optim::StepPlan divided = plan;
  mean_factor_ = 1;
  if (!recipe_.has_mean_pass(plan)) {
    mean_factor_ = plan.mean_factor(recipe_.ranks);
    divided.loss_scale = 1 / (static_cast<double>(recipe_.ranks) * plan.micro_steps);
  }
  scale_next_gradients();
  gradients_->begin_step(divided);
}

void TrainedModel::make_gradients(const optim::StepPlan& plan,
                                  const std::function<MicroBatch(int m)>& next,
                                  const std::function<void(const Tensor& loss)>& on_loss,
                                  const StepObserver& observer) {
  begin_step(plan);
  for (int m = 0; m < plan.micro_steps; ++m) {
    const MicroBatch micro = next(m);
    if (observer.before_forward) observer.before_forward(m);
    const Variable loss =
        cross_entropy((*model_)(Variable(micro.tokens)), micro.targets, plan.loss_scale);
    on_loss(loss.data());
    if (observer.before_backward) observer.before_backward(m);
    loss.backward(plan.loss_scale);
    if (observer.before_reduce) observer.before_reduce(m);
    gradients_->end_micro_step();
  }
  if (observer.before_finish) observer.before_finish();
  gradients_->finish_gradients();
}

double TrainedModel::clip(double max_norm) {
  ProcessGroup* const group = sharded_ != nullptr ? shards_.get() : group_.get();
  const double norm = optim::global_grad_norm(*gradients_, group, mean_factor_);
  scale_next_gradients(optim::clip_factor(norm, max_norm));
  return norm;
}

void TrainedModel::step(double lr) {
  mean_factor_ = 1;
  if (sharded_ != nullptr) return sharded_->step(lr);
  masters_changed_ = true;
  optimizers_.front()->step(gradients_->pieces(), lr);
  if (zero_ != nullptr) zero_->broadcast_parameters();
}

std::vector<nn::NamedParameter> TrainedModel::parameters() const {
  if (sharded_ == nullptr) return model_->named_parameters();
  std::vector<nn::NamedParameter> all;
  for (const auto& unit : sharded_->units()) {
    for (const auto& flat : unit->flat_parameters()) {
      all.insert(all.end(), flat->parameters().begin(), flat->parameters().end());
    }
  }
  return all;
}

void TrainedModel::for_each_full_parameter(const Visit& visit) {
  if (sharded_ != nullptr) {
    return sharded_->for_each_full_parameter(
        [&](const nn::NamedParameter& each, const Tensor& full) { visit(each.path, full); });
  }
  for (const nn::NamedParameter& each : model_->named_parameters()) {
    visit(each.path,
          zero_ != nullptr ? zero_->full_master(each.variable) : masters_.of(each.variable));
  }
}

void TrainedModel::add_whole(std::vector<HeldSlice>& held,
                             const nn::NamedParameter& parameter) const {
  const Variable& variable = parameter.variable;
  const Tensor& master = masters_.of(variable);
  const std::int64_t first = masters_.begin_of(variable), last = first + master.numel();
  const bool is_owned = zero_ != nullptr && masters_.has(variable);     // nothing else is held
  std::int64_t begin = first, end = is_owned || is_first() ? last : 0;  // of what is written
  if (zero_ != nullptr && !is_owned && variable.requires_grad()) {
    end = 0;
    for (std::size_t i = 0; i < zero_->owned().size(); ++i) {
      if (zero_->pieces()[i].key != parameter.path) continue;
      begin = zero_->owned()[i].begin;
      end = begin + zero_->owned()[i].numel;
    }
  }
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (from == to) return;
    held.push_back({{"param/" + parameter.path, variable.shape(), from,
                     master.view({master.numel()}).narrow(0, from - first, to - from)},
                    from == begin && to == end});
  };
  add(first, begin);
  add(begin, end);
  add(end, last);
}

std::vector<HeldSlice> TrainedModel::parameter_state() const {
  std::vector<HeldSlice> held;
  if (sharded_ == nullptr) {
    for (const nn::NamedParameter& each : model_->named_parameters()) add_whole(held, each);
    return held;
  }
  for (const auto& unit : sharded_->units()) {
    for (const auto& flat : unit->flat_parameters()) {
      for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
        const Span& span = flat->spans()[piece.span];
        held.push_back({{"param/" + span.path, span.shape, piece.param_begin,
                         flat->shard().narrow(0, piece.shard_begin, piece.numel)},
                        writer() >= 0});
      }
    }
  }
  return held;
}

std::vector<HeldSlice> TrainedModel::state() {
  std::vector<HeldSlice> held;
  if (sharded_ != nullptr) {
    for (io::StateSlice& slice : sharded_->state_slices(/*with_replicated=*/true)) {
      held.push_back({std::move(slice), writer() >= 0});
    }
    return held;
  }
  held = parameter_state();
  std::map<std::string, Shape> shapes;
  for (const nn::NamedParameter& each : model_->named_parameters()) {
    shapes[each.path] = each.variable.shape();
  }
  for (std::size_t i = 0; i < gradients_->pieces().size(); ++i) {
    const optim::Piece& piece = gradients_->pieces()[i];
    const std::int64_t begin = zero_ == nullptr ? 0 : zero_->owned()[i].begin;
    for (const auto& [name, state] : optimizers_.front()->state(piece)) {
      held.push_back(
          {{name + "/" + piece.key, shapes.at(piece.key), begin, state.view({state.numel()})},
           writer() >= 0});
    }
  }
  return held;
}

// The replicas of a mesh hold the same, and so do the ranks of ddp: the first of them writes.
int TrainedModel::writer() const {
  if (sharded_ != nullptr) return replica_of(*shards_) == 0 ? shards_->rank() : -1;
  if (zero_ != nullptr) return group_->rank();
  return is_first() ? 0 : -1;
}

int TrainedModel::writers() const {
  if (sharded_ != nullptr) return shards_->size();
  return zero_ != nullptr ? group_->size() : 1;
}

void TrainedModel::about_to_change() {
  if (sharded_ != nullptr) sharded_->reshard();
  masters_changed_ = true;
}

void TrainedModel::changed() {
  if (zero_ != nullptr) zero_->refresh();
}

std::unique_ptr<TrainedModel> make_trained_model(const config::TrainConfig& config,
                                                 std::shared_ptr<ProcessGroup> group) {
  const auto build = [&config] {
    const bool is_drawn = config.from.empty() && config.checkpoint.from.empty();
    if (is_drawn) return std::make_shared<nn::TransformerLM>(config.model);
    Undrawn undrawn;
    const nn::InitObserverScope scope(undrawn);
    return std::make_shared<nn::TransformerLM>(config.model);
  };
  return std::make_unique<TrainedModel>(build, config.recipe, std::move(group));
}

}  // namespace fsdp::strategies
