/// @file
/// Single steps of a sharded model, and the members they fill.
#pragma once

#include "task7_integration/integration.h"

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace fsdp {

struct StepProbe {
  /// Everything but 7.1, 7.2 and 7.3.
  static std::unique_ptr<ShardedModel> unbuilt(nn::Module& root,
                                               std::shared_ptr<ProcessGroup> group,
                                               FullyShardOptions options) {
    return std::unique_ptr<ShardedModel>(
        new ShardedModel(ShardedModel::Unbuilt{}, root, std::move(group), std::move(options)));
  }
  /// The same in memory of the caller's, who also ends its life.
  static ShardedModel* unbuilt_at(void* place, nn::Module& root,
                                  std::shared_ptr<ProcessGroup> group, FullyShardOptions options) {
    return new (place)
        ShardedModel(ShardedModel::Unbuilt{}, root, std::move(group), std::move(options));
  }
  /// As if the device had a host apart.
  static void set_offload(ShardedModel& model, const optim::Offload& offload) {
    model.options_.offload = offload;
  }
  static void make_units(ShardedModel& model) { model.make_units(); }
  static void install_hooks(ShardedModel& model) { model.install_hooks(); }
  static void make_replicated(ShardedModel& model) { model.make_replicated(); }
  static const std::vector<nn::NamedParameter>& replicated(const ShardedModel& model) {
    return model.replicated_;
  }
  /// What the optimizer updates of one of these: it has no other dtype without mixed precision.
  static const Tensor& master(const ShardedModel& model, const nn::NamedParameter& replicated) {
    return model.replicated_masters_.of(replicated.variable);
  }
  static GradientReducer* reducer(ShardedModel& model) { return model.reducer_.get(); }
  static const optim::Optimizer* replicated_optimizer(const ShardedModel& model) {
    return model.replicated_optimizer_.get();
  }
  /// Of what is ignored and trainable; none if nothing is.
  static std::vector<optim::Piece> replicated_pieces(const ShardedModel& model) {
    if (model.replicated_gradients_ == nullptr) return {};
    return model.replicated_gradients_->pieces();
  }
  static bool has_replicated_gradients(const ShardedModel& model) {
    return model.replicated_gradients_ != nullptr;
  }
};

}  // namespace fsdp
