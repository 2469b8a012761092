// Task 3: the forward pass.     Handout: tasks/task3_forward/README.md
// Edit only this file. Types and data members: forward.h
// Check with:  make test-task3

#include "task3_forward/forward.h"

#include "base/check.h"
#include "base/todo.h"
#include "tensor/cast.h"
#include "tensor/ops.h"

#include <utility>

namespace fsdp {

ShardedUnit::ShardedUnit(std::string name, nn::Module& module,
                         std::vector<std::unique_ptr<FlatParameter>> flat_parameters,
                         std::shared_ptr<ProcessGroup> group,
                         std::shared_ptr<ProcessGroup> subgroup, Options options)
    : name_(std::move(name)),
      module_(module),
      flats_(std::move(flat_parameters)),
      group_(std::move(group)),
      subgroup_(std::move(subgroup)),
      options_(options) {
  options_.reshard_after_forward.validate(group_->size());
  const bool in_subgroups =
      options_.reshard_after_forward.kind == ReshardAfterForward::Kind::within;
  FSDP_CHECK(
      in_subgroups == (subgroup_ != nullptr),
      "unit {}: a subgroup is required with reshard_after_forward = s, and not allowed otherwise",
      name_);
  module_.set_unit_name(name_);
}

ShardedUnit::~ShardedUnit() {
  for (const int hook : hooks_) module_.remove_hook(hook);
}

// ------------------------------------------------------------------- TODO 3.1
// Allocate the full parameters and start to gather them.
//
// Keep:  every all-gather writes into the flat vector itself (full()), where the model's views
//        point, and reads to_gather(flat, phase): without mixed precision that is the shard.
//        Do nothing unless the unit is sharded, and do not wait.
// Note:  if parts are kept for the subgroup (3.4), gather these, in the subgroup.
void ShardedUnit::start_unshard(Phase phase) {
  // SOLUTION 3.1: todo(phase, state_, gathers_, flats_)
  if (state_ != State::sharded) return;
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    const FlatParameter& flat = *flats_[i];
    flat.full().storage()->allocate();
    if (subgroup_parts_.empty()) {
      gathers_.push_back(group_->all_gather(flat.full(), to_gather(flat, phase), {name_, phase}));
    } else {
      gathers_.push_back(subgroup_->all_gather(flat.full(), subgroup_parts_[i], {name_, phase}));
    }
  }
  state_ = State::unsharding;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 3.2
// Wait until the full parameters can be read.
//
// Keep:  works from every state. Afterwards no parts are kept for the subgroup.
void ShardedUnit::finish_unshard(Phase phase) {
  // SOLUTION 3.2: todo(phase, state_, gathers_)
  start_unshard(phase);
  if (state_ == State::unsharded) return;
  for (Work& gather : gathers_) gather.wait();
  gathers_.clear();
  subgroup_parts_.clear();
  state_ = State::unsharded;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 3.3
// Free the full parameters.
//
// Keep:  free the storage, do not replace it. So the views stay valid, also those autograd saved.
//        Drop the parts kept for the subgroup too: after an optimizer step they would be stale.
// Hint:  a storage under a running gather cannot be freed.
void ShardedUnit::reshard() {
  // SOLUTION 3.3: todo(state_, flats_)
  subgroup_parts_.clear();
  if (state_ == State::sharded) return;
  for (Work& gather : gathers_) gather.wait();
  gathers_.clear();
  for (const auto& flat : flats_) flat->full().storage()->free();
  state_ = State::sharded;
  // END SOLUTION
}

std::shared_ptr<Storage> ShardedUnit::subgroup_storage(const FlatParameter& flat) const {
  const auto part = flat.padded_numel() / subgroup_->size();
  return std::make_shared<Storage>(
      flat.full().device(), static_cast<std::size_t>(part) * size_of(flat.full().dtype()),
      MemoryKind::unsharded_param, std::make_shared<const Owner>(Owner{name_, "subgroup part"}));
}

// ------------------------------------------------------------------- TODO 3.4
// Keep 1/s of the full parameters, then free the rest.
//
//     W = 4, s = 2      rank 0 keeps [0, P/2)   rank 1 keeps [P/2, P)   |  ranks 2, 3 likewise
//
// Set:   subgroup_parts_, one (P/s) tensor per flat parameter, over subgroup_storage(flat).
// Keep:  rank r of the subgroup keeps part r, so its all-gather restores the whole vector.
void ShardedUnit::reshard_to_subgroup() {
  // SOLUTION 3.4: todo(subgroup_parts_, state_)
  if (state_ == State::sharded) return;
  std::vector<Tensor> parts;
  for (const auto& flat : flats_) {
    const std::int64_t part = flat->padded_numel() / subgroup_->size();
    const auto storage = subgroup_storage(*flat);
    storage->allocate();
    parts.push_back(Tensor::view_of(storage, 0, {part}, flat->full().dtype()));
    ops::copy(parts.back(), flat->full().narrow(0, subgroup_->rank() * part, part));
  }
  reshard();
  subgroup_parts_ = std::move(parts);
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 3.5
// Attach the two halves to the module.
//
// Keep:  pre-forward: the unit is unsharded, and then the scheduler (if any) is called.
//        post-forward: with a tape, follow the options, the root rule (keep_until_backward) first.
//        Without a tape (grad_enabled() is false) there will be no backward, so keep nothing.
void ShardedUnit::install_hooks() {
  // SOLUTION 3.5: todo(module_, hooks_)
  hooks_.push_back(module_.register_forward_pre_hook([this](nn::Module&) { pre_forward(); }));
  hooks_.push_back(module_.register_forward_hook([this](nn::Module&) { post_forward(); }));
  // END SOLUTION
  hooks_.push_back(module_.register_forward_hook([this](nn::Module&) {
    if (backward != nullptr && grad_enabled()) backward->after_forward();
  }));
  hooks_.push_back(module_.register_full_backward_pre_hook([this](nn::Module&) {
    if (backward != nullptr) backward->pre_backward();
  }));
  hooks_.push_back(module_.register_full_backward_hook([this](nn::Module&) {
    if (backward != nullptr) backward->post_backward();
  }));
}

void ShardedUnit::pre_forward() {
  // SOLUTION 3.5: todo(scheduler)
  finish_unshard(Phase::forward);
  if (scheduler != nullptr) scheduler->before_forward(*this);
  // END SOLUTION
}

void ShardedUnit::post_forward() {
  // SOLUTION 3.5: todo(options_)
  if (!grad_enabled()) return reshard();
  if (options_.keep_until_backward) return;
  using Kind = ReshardAfterForward::Kind;
  const Kind kind = options_.reshard_after_forward.kind;
  if (kind == Kind::always) reshard();
  if (kind == Kind::within) reshard_to_subgroup();
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 3.6
// Cast what is gathered, if the model reads another dtype than the shard has.
//
// Keep:  gather_input() of tensor/cast.h makes the copy. It is counted as ALL_GATHER, and its owner
//        is this unit. The Work keeps it alive, so keep no reference to it.
Tensor ShardedUnit::to_gather(const FlatParameter& flat, Phase phase) const {
  const Tensor &shard = flat.shard(), &full = flat.full();
  if (shard.dtype() == full.dtype() && shard.device() == full.device()) return shard;
  // SOLUTION 3.6: todo(name_, phase)
  const AllocationScope as_input(MemoryKind::all_gather,
                                 std::make_shared<const Owner>(Owner{name_, "cast shard"}));
  return gather_input(shard, full, phase);
  // END SOLUTION
}

bool ShardedUnit::has_trainable() const {
  for (const auto& flat : flats_) {
    if (flat->requires_grad()) return true;
  }
  return false;
}

std::int64_t ShardedUnit::padded_numel() const {
  std::int64_t total = 0;
  for (const auto& flat : flats_) total += flat->padded_numel();
  return total;
}

}  // namespace fsdp
