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

// SOLUTION 7.1:
namespace {

/// A unit is called after its module's path; a module without one after its children.
std::string unit_name_of(nn::Module& module, const nn::Module& root) {
  if (&module == &root) return "root";
  if (!module.path().empty()) return module.path();
  std::string name;
  for (const auto& child : module.children()) {
    name += (name.empty() ? "" : "+") + child->name();
  }
  return name;
}

}  // namespace
// END SOLUTION

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
  // SOLUTION 7.1: todo(unit, parameters, options_)
  using Kind = std::tuple<bool, DType, bool>;
  std::vector<std::pair<Kind, std::vector<nn::NamedParameter>>> kinds;
  for (const nn::NamedParameter& parameter : parameters) {
    const bool decays = !options_.decays || options_.decays(parameter);
    const Kind kind{parameter.variable.requires_grad(), parameter.variable.data().dtype(), decays};
    auto found = std::find_if(kinds.begin(), kinds.end(),
                              [&](const auto& each) { return each.first == kind; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, {}});
    found->second.push_back(parameter);
  }

  SliceSource source = copy_slice;
  if (options_.deferred != nullptr) {
    source = [this](const Variable& parameter, std::int64_t begin, const Tensor& out) {
      options_.deferred->init_slice(parameter, begin, out);
    };
  }
  std::vector<std::unique_ptr<FlatParameter>> flats;
  for (auto& [kind, members] : kinds) {
    flats.push_back(std::make_unique<FlatParameter>(unit, std::move(members), group_->rank(),
                                                    group_->size(), device_, source,
                                                    options_.mixed_precision, options_.offload));
    flats.back()->decay = std::get<2>(kind);
  }
  return flats;
  // END SOLUTION
}

void ShardedModel::make_units() {
  // SOLUTION 7.1: todo(options_, units_, replicated_)
  std::vector<nn::Module*> modules = options_.wrap(root_);
  std::erase(modules, &root_);
  std::vector<const void*> ignored;
  for (const nn::NamedParameter& parameter : root_.named_parameters()) {
    if (!is_ignored(parameter)) continue;
    replicated_.push_back(parameter);
    ignored.push_back(parameter.variable.id());
  }

  auto lists = parameters_of_units(root_, modules, ignored);
  std::vector<std::pair<nn::Module*, std::vector<nn::NamedParameter>>> managed;
  managed.emplace_back(&root_, std::move(lists.back()));
  for (std::size_t i = 0; i < modules.size(); ++i) {
    managed.emplace_back(modules[i], std::move(lists[i]));
  }
  std::erase_if(managed, [](const auto& each) { return each.second.empty(); });

  std::shared_ptr<ProcessGroup> subgroup;
  const ReshardAfterForward& option = options_.reshard_after_forward;
  if (option.kind == ReshardAfterForward::Kind::within) {
    subgroup = group_->split_contiguous(option.ranks);
  }
  const bool root_is_unit = !managed.empty() && managed.front().first == &root_;
  for (const auto& [module, parameters] : managed) {
    const bool is_last = module == managed.back().first;
    const std::string name = unit_name_of(*module, root_);
    units_.push_back(std::make_unique<ShardedUnit>(
        name, *module, make_flat_parameters(name, parameters), group_, subgroup,
        ShardedUnit::Options{.reshard_after_forward = options_.reshard_after_forward,
                             .keep_until_backward = root_is_unit ? module == &root_ : is_last}));
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 7.2
// Attach everything: the units' hooks, and in their slots the prefetcher and the reducer.
//
// Keep:  call forward_begins before the root's own unit is gathered, and forward_ends at the end.
//        At depth 0 there is no prefetcher.
void ShardedModel::install_hooks() {
  // SOLUTION 7.2: todo(units_, reducer_, prefetcher_, hooks_)
  std::vector<ShardedUnit*> units;
  for (const auto& unit : units_) units.push_back(unit.get());
  if (options_.prefetch_depth > 0) {
    prefetcher_ = std::make_unique<Prefetcher>(
        units, Prefetcher::Options{options_.prefetch_depth, options_.in_flight_limit});
    hooks_.push_back(
        root_.register_forward_pre_hook([this](nn::Module&) { prefetcher_->forward_begins(); }));
  }
  for (ShardedUnit* unit : units) {
    unit->install_hooks();
    unit->scheduler = prefetcher_.get();
  }
  reducer_ = std::make_unique<GradientReducer>(units, group_);
  if (prefetcher_ != nullptr) {
    hooks_.push_back(
        root_.register_forward_hook([this](nn::Module&) { prefetcher_->forward_ends(); }));
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 7.3
// What is not sharded: ignored parameters (whole on every rank, gradients all-reduced) and buffers.
//
// Keep:  after a meta start, ignored parameters and buffers are allocated, with the bits of an
//        eager build. The generator is where an eager build would have left it. options_.decays
//        decides for ignored parameters too.
// Set:   replicated_masters_, of all of them. Before every forward of the root, refresh() it.
void ShardedModel::make_replicated() {
  // SOLUTION 7.3: todo(replicated_, replicated_gradients_)
  if (options_.deferred != nullptr) {
    AllocationScope as_parameter(MemoryKind::unsharded_param);
    for (const nn::NamedParameter& parameter : replicated_) {
      Variable variable = parameter.variable;
      variable.set_data(Tensor::empty(variable.shape(), variable.data().dtype(), device_));
      options_.deferred->init_slice(variable, 0, variable.data().view({variable.data().numel()}));
    }
    for (nn::Module* module : root_.modules()) module->initialize_buffers();
    options_.deferred->advance_generator();
  }
  std::vector<std::pair<std::string, Variable>> all, trainable;
  for (const nn::NamedParameter& parameter : replicated_) {
    all.emplace_back(parameter.path, parameter.variable);
    if (parameter.variable.requires_grad()) trainable.push_back(all.back());
  }
  replicated_masters_ = optim::MasterWeights(all, options_.mixed_precision);
  if (!replicated_.empty()) {
    hooks_.push_back(
        root_.register_forward_pre_hook([this](nn::Module&) { replicated_masters_.refresh(); }));
  }
  if (!trainable.empty()) {
    replicated_gradients_ = std::make_unique<parallel::DdpGradients>(
        trainable, group_, parallel::DdpGradients::kBucketBytes, replicated_masters_);
    for (optim::Piece& piece : replicated_gradients_->pieces()) {
      const auto parameter =
          std::find_if(replicated_.begin(), replicated_.end(),
                       [&](const nn::NamedParameter& each) { return each.path == piece.key; });
      piece.decay = !options_.decays || options_.decays(*parameter);
    }
  }
  // END SOLUTION
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
  // SOLUTION 7.4: todo(plan, reducer_, replicated_gradients_)
  reducer_->begin_step(plan);
  if (replicated_gradients_ != nullptr) replicated_gradients_->begin_step(plan);
  // END SOLUTION
}

void ShardedModel::end_micro_step() {
  // SOLUTION 7.4: todo(reducer_, replicated_gradients_)
  reducer_->end_of_backward();
  if (replicated_gradients_ != nullptr) replicated_gradients_->end_micro_step();
  // END SOLUTION
}

void ShardedModel::finish_gradients() {
  // SOLUTION 7.4: todo(reducer_, replicated_gradients_)
  reducer_->finish_gradients();
  if (replicated_gradients_ != nullptr) replicated_gradients_->finish_gradients();
  // END SOLUTION
}

std::vector<optim::Piece>& ShardedModel::pieces() {
  // SOLUTION 7.4: todo(pieces_, optimizer_, replicated_gradients_)
  pieces_ = optimizer().pieces();
  if (replicated_gradients_ != nullptr) {
    const std::vector<optim::Piece>& more = replicated_gradients_->pieces();
    pieces_.insert(pieces_.end(), more.begin(), more.end());
  }
  return pieces_;
  // END SOLUTION
}

void ShardedModel::add_squares(ExactSquareSum& sum) {
  // SOLUTION 7.4: todo(sum, optimizer_, replicated_gradients_)
  optimizer().add_squares(sum);
  if (replicated_gradients_ != nullptr) replicated_gradients_->add_squares(sum);
  // END SOLUTION
}

void ShardedModel::zero_grad() {
  // SOLUTION 7.4: todo(units_, replicated_gradients_)
  pieces_.clear();  // they hold gradients too
  for (FlatParameter* flat : flat_parameters()) flat->set_shard_grad(Tensor());
  if (replicated_gradients_ != nullptr) replicated_gradients_->zero_grad();
  // END SOLUTION
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
  // SOLUTION 7.4: todo(lr, optimizer_, replicated_optimizer_)
  reshard();  // a forward without a backward may have left a unit
  optimizer().step(lr);
  if (replicated_gradients_ != nullptr) {
    replicated_optimizer_->step(replicated_gradients_->pieces(), lr);
  }
  // END SOLUTION
}

}  // namespace fsdp
