// Task 7: integration.     Handout: tasks/task7_integration/README.md
// Edit only this file and state.cpp. Types and data members: integration.h
// Check with:  make test-task7

#include "task7_integration/integration.h"

#include "base/check.h"
#include "base/todo.h"
#include "task7_integration/composition.h"
#include "task7_integration/mesh_model.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace fsdp {

std::unique_ptr<ShardedModel> fully_shard(nn::Module& module, std::shared_ptr<ProcessGroup> group,
                                          FullyShardOptions options) {
  check_composition(module, options.wrap);
  std::unique_ptr<ShardedModel> made;
  if (group->replicas() == nullptr) {
    made = std::make_unique<ShardedModel>(module, std::move(group), std::move(options));
  } else {
    made = std::make_unique<MeshModel>(module, std::move(group), std::move(options));
  }
  for (nn::Module* each : module.modules()) each->set_sharding(nn::Module::Sharding::sharded);
  return made;
}

void fully_shard(nn::Module& module) {
  check_unsharded(module);
  FSDP_CHECK(module.parent() != nullptr || marked_in(module).empty(),
             "fully_shard() was called for the model, after its parts, without a group: call "
             "fully_shard(model, group)");
  module.set_sharding(nn::Module::Sharding::unit_to_be);
}

std::vector<nn::Module*> default_wrap_policy(nn::Module& root) {
  std::vector<nn::Module*> marked = marked_in(root);
  return marked.empty() ? root.default_units() : marked;
}

ShardedModel::ShardedModel(nn::Module& root, std::shared_ptr<ProcessGroup> group,
                           FullyShardOptions options)
    : ShardedModel(Unbuilt{}, root, std::move(group), std::move(options)) {
  make_units();
  install_hooks();
  make_replicated();
}

ShardedModel::ShardedModel(Unbuilt, nn::Module& root, std::shared_ptr<ProcessGroup> group,
                           FullyShardOptions options)
    : root_(root),
      group_(std::move(group)),
      options_(std::move(options)),
      device_(Context::current().device()) {
  options_.reshard_after_forward.validate(group_->size());
  FSDP_CHECK(options_.prefetch_depth >= 0, "prefetch_depth = {}: use 0 (none) or more",
             options_.prefetch_depth);
  options_.offload.validate();
}

ShardedModel::~ShardedModel() {
  for (const int hook : hooks_) root_.remove_hook(hook);
}

bool ShardedModel::is_ignored(const nn::NamedParameter& parameter) const {
  return std::any_of(options_.ignored.begin(), options_.ignored.end(),
                     [&](const std::string& path) {
                       return parameter.path == path || parameter.path.starts_with(path + ".");
                     });
}

// ------------------------------------------------------------------- TODO 7.1
// Make the units.
//
// Keep:  a unit holds one flat parameter per (requires_grad, dtype, decay), in order of first
//        appearance. A module left without parameters is no unit. Units are in forward order, the
//        root's (if any) first. Keep the root's unit between forward and backward or, if the root
//        manages nothing, the last one.
std::vector<std::unique_ptr<FlatParameter>> ShardedModel::make_flat_parameters(
    const std::string& unit, const std::vector<nn::NamedParameter>& parameters) const {
  todo("7.1", unit, parameters, options_);
}

void ShardedModel::make_units() {
  todo("7.1", options_, units_, replicated_);
}

// ------------------------------------------------------------------- TODO 7.2
// Attach everything: the units' hooks, and in their slots the prefetcher and the reducer.
//
// Keep:  call forward_begins before the root's own unit is gathered, and forward_ends at the end.
//        At depth 0 there is no prefetcher.
void ShardedModel::install_hooks() {
  todo("7.2", units_, reducer_, prefetcher_, hooks_);
}

// ------------------------------------------------------------------- TODO 7.3
// What is not sharded: ignored parameters (whole on every rank, gradients all-reduced) and buffers.
//
// Keep:  after a meta start, ignored parameters and buffers are allocated, with the bits of an
//        eager build. The generator is where an eager build would have left it. options_.decays
//        decides for ignored parameters too.
// Set:   replicated_masters_, of all of them. Before every forward of the root, refresh() it.
void ShardedModel::make_replicated() {
  todo("7.3", replicated_, replicated_gradients_);
}

ShardedUnit& ShardedModel::unit(const std::string& name) {
  std::string names;
  for (const auto& unit : units_) {
    if (unit->name() == name) return *unit;
    names += " " + unit->name();
  }
  fail("no unit is named {}; the units are:{}", name, names);
}

std::vector<FlatParameter*> ShardedModel::flat_parameters() const {
  std::vector<FlatParameter*> flats;
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flat_parameters()) flats.push_back(flat.get());
  }
  return flats;
}

void ShardedModel::reshard() {
  for (const auto& unit : units_) unit->reshard();
}

void ShardedModel::attach_optimizer(
    const std::function<std::shared_ptr<optim::Optimizer>()>& make_optimizer) {
  optimizer_ = std::make_unique<ShardedOptimizer>(flat_parameters(), make_optimizer(), group_);
  if (replicated_gradients_ != nullptr) replicated_optimizer_ = make_optimizer();
}

ShardedOptimizer& ShardedModel::optimizer() {
  FSDP_CHECK(optimizer_ != nullptr, "attach_optimizer() has not been called");
  return *optimizer_;
}

// ------------------------------------------------------------------- TODO 7.4
// The protocol of GradientEngine (optim/gradient_engine.h), over the reducer, the sharded
// optimizer, and the engine of the replicated parameters.
//
// Keep:  a backward that reached no unit (everything frozen, or a loss that uses none) still counts
//        as a micro-step. Replicated gradients count once in the norm, not W times. No unit is
//        unsharded when the shards change.
void ShardedModel::begin_step(const optim::StepPlan& plan) {
  todo("7.4", plan, reducer_, replicated_gradients_);
}

void ShardedModel::end_micro_step() {
  todo("7.4", reducer_, replicated_gradients_);
}

void ShardedModel::finish_gradients() {
  todo("7.4", reducer_, replicated_gradients_);
}

std::vector<optim::Piece>& ShardedModel::pieces() {
  todo("7.4", pieces_, optimizer_, replicated_gradients_);
}

void ShardedModel::add_squares(ExactSquareSum& sum) {
  todo("7.4", sum, optimizer_, replicated_gradients_);
}

void ShardedModel::zero_grad() {
  todo("7.4", units_, replicated_gradients_);
}

double ShardedModel::clip_grad_norm(double max_norm) {
  ExactSquareSum replicated;
  if (replicated_gradients_ != nullptr) replicated_gradients_->add_squares(replicated);
  const double norm = optimizer().clip_grad_norm(max_norm, replicated);
  if (replicated_gradients_ != nullptr) {
    optim::scale_gradients(*replicated_gradients_, optim::clip_factor(norm, max_norm));
  }
  return norm;
}

void ShardedModel::step(double lr) {
  todo("7.4", lr, optimizer_, replicated_optimizer_);
}

}  // namespace fsdp
