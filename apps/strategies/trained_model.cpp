#include "strategies/trained_model.h"

#include "comm/replicas.h"
#include "optim/local_gradients.h"
#include "parallel/ddp.h"
#include "task8_beyond/mesh.h"

#include <map>
#include <utility>

namespace fsdp::strategies {

TrainedModel::TrainedModel(const Build& build, const Spread& spread,
                           std::shared_ptr<ProcessGroup> group)
    : group_(std::move(group)) {
  spread.strategy == Strategy::fsdp ? shard(build, spread) : replicate(build, spread);
}

void TrainedModel::shard(const Build& build, const Spread& spread) {
  model_ = spread.is_deferred ? deferred_.build(build) : build();
  FullyShardOptions options;
  options.reshard_after_forward = spread.reshard;
  options.prefetch_depth = spread.prefetch_depth;
  options.in_flight_limit = spread.in_flight_limit;
  options.mixed_precision = spread.mixed_precision;
  options.offload = spread.offload;
  options.deferred = spread.is_deferred ? &deferred_ : nullptr;
  if (spread.decays) {
    options.decays = [decays = spread.decays](const nn::NamedParameter& each) {
      return decays(each.path);
    };
  }
  shards_ = spread.replicas == 1 ? group_ : make_mesh(*group_, spread.replicas);
  auto sharded = fully_shard(*model_, shards_, std::move(options));
  sharded->attach_optimizer(spread.make_optimizer);
  sharded_ = sharded.get();
  gradients_ = std::move(sharded);
}

void TrainedModel::replicate(const Build& build, const Spread& spread) {
  if (spread.is_deferred) {
    DeferredInit deferred;
    model_ = deferred.build(build);
    deferred.materialize(*model_, Context::current().device());
  } else {
    model_ = build();
  }
  const auto variables = model_->variables();
  masters_ = optim::MasterWeights(variables, spread.mixed_precision);
  optimizer_ = spread.make_optimizer();
  model_->register_forward_pre_hook([this](nn::Module&) {
    if (std::exchange(masters_changed_, false)) masters_.refresh();
  });
  const parallel::ReduceOptions& reductions = spread.zero.reductions;
  std::unique_ptr<parallel::ZeroGradients> zero;
  if (spread.strategy == Strategy::zero1) {
    zero = std::make_unique<parallel::Zero1Gradients>(variables, group_, spread.zero, masters_,
                                                      spread.bucket_bytes);
  } else if (spread.strategy == Strategy::zero2) {
    zero = std::make_unique<parallel::Zero2Gradients>(variables, group_, spread.zero, masters_);
  } else if (spread.strategy == Strategy::ddp) {
    gradients_ = std::make_unique<parallel::DdpGradients>(variables, group_, spread.bucket_bytes,
                                                          masters_, reductions);
  } else {
    gradients_ =
        std::make_unique<optim::LocalGradients>(variables, masters_, reductions.compression);
  }
  zero_ = zero.get();
  if (zero != nullptr) gradients_ = std::move(zero);
  if (!spread.decays) return;
  for (optim::Piece& piece : gradients_->pieces()) piece.decay = spread.decays(piece.key);
}

optim::Optimizer& TrainedModel::optimizer() {
  return sharded_ != nullptr ? sharded_->optimizer().optimizer() : *optimizer_;
}

void TrainedModel::barrier(const char* what) const {
  if (group_ != nullptr) group_->barrier({what, Phase::checkpoint}).wait();
}

double TrainedModel::clip(double max_norm) {
  return sharded_ != nullptr ? sharded_->clip_grad_norm(max_norm)
                             : optim::clip_by_global_norm(*gradients_, group_.get(), max_norm);
}

void TrainedModel::step(double lr) {
  if (sharded_ != nullptr) return sharded_->step(lr);
  masters_changed_ = true;
  optimizer_->step(gradients_->pieces(), lr);
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
    visit(each.path, masters_.of(each.variable));
  }
}

void TrainedModel::add_whole(std::vector<HeldSlice>& held,
                             const nn::NamedParameter& parameter) const {
  const Tensor& whole = masters_.of(parameter.variable);
  const std::int64_t numel = whole.numel();
  std::int64_t begin = 0, end = is_first() ? numel : 0;  // of what this rank writes
  if (zero_ != nullptr && parameter.variable.requires_grad()) {
    end = 0;
    for (std::size_t i = 0; i < zero_->owned().size(); ++i) {
      if (zero_->pieces()[i].key != parameter.path) continue;
      begin = zero_->owned()[i].begin;
      end = begin + zero_->owned()[i].numel;
    }
  }
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (from == to) return;
    held.push_back({{"param/" + parameter.path, whole.shape(), from,
                     whole.view({numel}).narrow(0, from, to - from)},
                    from == begin && to == end});
  };
  add(0, begin);
  add(begin, end);
  add(end, numel);
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
    shapes[each.path] = masters_.of(each.variable).shape();
  }
  for (std::size_t i = 0; i < gradients_->pieces().size(); ++i) {
    const optim::Piece& piece = gradients_->pieces()[i];
    const std::int64_t begin = zero_ == nullptr ? 0 : zero_->owned()[i].begin;
    for (const auto& [name, state] : optimizer_->state(piece)) {
      held.push_back(
          {{name + "/" + piece.key, shapes.at(piece.key), begin, state.view({state.numel()})},
           writer() >= 0});
    }
  }
  return held;
}

// The replicas of a mesh hold the same, and so do the ranks of ddp: the first of them writes.
int TrainedModel::writer() const {
  if (sharded_ != nullptr) {
    const bool is_other = shards_->replicas() != nullptr && replica_of(*shards_) != 0;
    return is_other ? -1 : shards_->rank();
  }
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

}  // namespace fsdp::strategies
